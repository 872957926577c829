#include "data/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/text.h"
#include "data/documents_hash.h"
#include "data/inputs.h"
#include "data/token_cache.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;
using tokenizer::Tokenizer;

constexpr std::uint32_t kSplitStream = 0xFFFFFFFF;  // apart from every epoch's shuffle

// A raw import has no vocabulary hash: the number of its ids is all that can be checked.
void check_vocabulary(const fs::path& path,
                      const TokenFile& file,
                      const Tokenizer& tokenizer,
                      std::int64_t model_vocab_size) {
  const TokenFileInfo& info = file.info();
  if (info.vocabulary_hash != 0 && info.vocabulary_hash != tokenizer.vocabulary_hash()) {
    throw base::DataError(cat(path.string(),
                              ": made with vocabulary ",
                              base::hex64(info.vocabulary_hash),
                              ", the run's tokenizer ('",
                              tokenizer.name(),
                              "') has ",
                              base::hex64(tokenizer.vocabulary_hash()),
                              "; use the same tokenizer or tokenize again"));
  }
  const std::int64_t most = model_vocab_size > 0 ? model_vocab_size : tokenizer.vocab_size();
  if (info.vocab_size > static_cast<std::uint64_t>(most)) {
    throw base::DataError(cat(path.string(),
                              ": made for ",
                              info.vocab_size,
                              " ids, the model has ",
                              most,
                              " (model.vocab_size); use the model's tokenizer"));
  }
}

// All documents of token files, then those of text files.
std::vector<Samples::Document> documents_of(const std::vector<fs::path>& inputs,
                                            const DatasetOptions& options,
                                            const Tokenizer& tokenizer,
                                            base::ThreadPool& pool,
                                            Dataset& dataset) {
  std::vector<std::shared_ptr<const TokenFile>> token_files;
  std::vector<fs::path> text_files;
  for (const fs::path& path : inputs) {
    if (is_token_file(path)) {
      token_files.push_back(std::make_shared<const TokenFile>(path));
      check_vocabulary(path, *token_files.back(), tokenizer, options.vocab_size);
    } else {
      text_files.push_back(path);
    }
  }
  if (!text_files.empty()) {
    const CachedTokens made =
        cached_tokens(text_files, options.documents, tokenizer, options.cache_folder, pool);
    token_files.push_back(made.file);
    add(dataset.skipped, made.skipped);
  }
  std::vector<Samples::Document> documents;
  for (const auto& file : token_files) {
    if (file->info().vocabulary_hash == 0) dataset.token_bytes.clear();
    for (std::int64_t d = 0; d < file->documents(); ++d) documents.push_back({file, d});
  }
  return documents;
}

void warn_of_shared_files(const std::vector<fs::path>& train,
                          const std::vector<fs::path>& validation) {
  for (const fs::path& path : validation) {
    const bool shared = std::any_of(train.begin(), train.end(), [&](const fs::path& other) {
      std::error_code ignored;
      return fs::equivalent(path, other, ignored);
    });
    if (shared) {
      base::log_warning(cat(path.string(),
                            ": is training and validation data: the validation loss will say "
                            "little about other text"));
    }
  }
}

struct Split {
  std::vector<Samples::Document> train, validation;
};

Split split_documents(std::vector<Samples::Document> documents,
                      double fraction,
                      std::uint64_t seed) {
  if (documents.size() < 2) {
    throw base::DataError(cat("data.validation: ",
                              documents.size(),
                              " document cannot be split; give a file for "
                              "data.validation, or data of at least two documents"));
  }
  std::vector<double> draw(documents.size());
  for (std::size_t d = 0; d < draw.size(); ++d) {
    draw[d] = base::uniform_open(
        base::random_block(seed, base::RandomPurpose::kShuffle, kSplitStream, d)[0]);
  }
  const auto lowest =
      static_cast<std::size_t>(std::min_element(draw.begin(), draw.end()) - draw.begin());
  const auto highest =
      static_cast<std::size_t>(std::max_element(draw.begin(), draw.end()) - draw.begin());
  Split split;
  for (std::size_t d = 0; d < draw.size(); ++d) {
    const bool validates = d == lowest || (d != highest && draw[d] < fraction);
    (validates ? split.validation : split.train).push_back(std::move(documents[d]));
  }
  return split;
}

std::unique_ptr<Samples> samples_of(std::vector<Samples::Document> documents,
                                    const SampleOptions& options,
                                    const char* part) {
  auto samples = std::make_unique<Samples>(std::move(documents), options);
  if (samples->size() == 0) {
    throw base::DataError(cat(part,
                              ": ",
                              samples->counts().tokens,
                              " tokens in ",
                              samples->counts().documents,
                              " documents make no row of data.seq_len ",
                              options.seq_len,
                              "; give more data or a smaller data.seq_len"));
  }
  return samples;
}

}  // namespace

Dataset open_dataset(const DatasetOptions& options,
                     const Tokenizer& tokenizer,
                     base::ThreadPool& pool) {
  Dataset dataset;
  dataset.token_bytes.resize(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t id = 0; id < dataset.token_bytes.size(); ++id) {
    dataset.token_bytes[id] =
        static_cast<std::int32_t>(tokenizer.token_bytes(static_cast<std::int32_t>(id)).size());
  }
  const std::vector<fs::path> train = expand_inputs(options.train, Inputs::kTextAndTokenFiles);
  Split split;
  split.train = documents_of(train, options, tokenizer, pool, dataset);
  if (options.validation.empty()) {
    split =
        split_documents(std::move(split.train), options.validation_fraction, options.samples.seed);
  } else {
    const auto validation = expand_inputs(options.validation, Inputs::kTextAndTokenFiles);
    warn_of_shared_files(train, validation);
    split.validation = documents_of(validation, options, tokenizer, pool, dataset);
  }
  dataset.hash = documents_hash(split.validation, documents_hash(split.train, 0));
  dataset.train = samples_of(std::move(split.train), options.samples, "data.train");
  SampleOptions in_order = options.samples;
  in_order.shuffle = false;
  dataset.validation = samples_of(std::move(split.validation), in_order, "data.validation");
  return dataset;
}

std::optional<std::int64_t> target_bytes(const Dataset& dataset, const Batch& batch) {
  if (dataset.token_bytes.empty()) return std::nullopt;
  std::int64_t bytes = 0;
  for (const std::int32_t target : batch.targets) {
    if (target != kIgnored) bytes += dataset.token_bytes[static_cast<std::size_t>(target)];
  }
  return bytes;
}

}  // namespace g2::data
