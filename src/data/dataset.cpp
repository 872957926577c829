#include "data/dataset.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/progress.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "data/inputs.h"
#include "data/tokenize_files.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;
using tokenizer::Tokenizer;

constexpr std::uint32_t kSplitStream = 0xFFFFFFFF;  // apart from every epoch's shuffle

std::string cache_key(const std::vector<fs::path>& files,
                      const DocumentOptions& options,
                      const Tokenizer& tokenizer) {
  std::string text = cat(base::hex64(tokenizer.vocabulary_hash()),
                         "\n",
                         options.text_key,
                         "\n",
                         options.skip_bad,
                         "\n");
  for (const fs::path& file : files) {
    text += cat(fs::absolute(file).string(),
                "\n",
                fs::file_size(file),
                "\n",
                fs::last_write_time(file).time_since_epoch().count(),
                "\n");
  }
  return base::hex64(base::hash64(text));
}

// The token file of text files: from the cache, or made now.
fs::path tokenised(const std::vector<fs::path>& files,
                   const DatasetOptions& options,
                   const Tokenizer& tokenizer,
                   base::ThreadPool& pool,
                   SkipReport& skipped) {
  const fs::path cached =
      options.cache_folder / (cache_key(files, options.documents, tokenizer) + ".tok");
  if (fs::exists(cached)) return cached;
  std::error_code failure;
  fs::create_directories(options.cache_folder, failure);
  if (failure)
    throw base::FolderError(
        cat(options.cache_folder.string(), ": cannot create: ", failure.message()));
  base::ProgressBar bar("tokenizing", "MiB", 0);
  const TokenizeReport report = tokenize_files(
      files, options.documents, tokenizer, cached, pool, [&](std::uintmax_t done, std::uintmax_t) {
        if (base::stop_requested()) throw base::Interrupted("stopped while tokenizing");
        bar.update(static_cast<double>(done) / (1 << 20));
      });
  add(skipped, report.skipped);
  return cached;
}

void check_vocabulary(const fs::path& path, const TokenFile& file, const Tokenizer& tokenizer) {
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
}

std::vector<Samples::Document> documents_of(const std::vector<std::string>& entries,
                                            const DatasetOptions& options,
                                            const Tokenizer& tokenizer,
                                            base::ThreadPool& pool,
                                            Dataset& dataset) {
  std::vector<fs::path> token_files;
  std::vector<fs::path> text_files;
  for (const fs::path& file : expand_inputs(entries, Inputs::kTextAndTokenFiles)) {
    (is_token_file(file) ? token_files : text_files).push_back(file);
  }
  if (!text_files.empty()) {
    token_files.push_back(tokenised(text_files, options, tokenizer, pool, dataset.skipped));
  }
  std::vector<Samples::Document> documents;
  for (const fs::path& path : token_files) {
    const auto file = std::make_shared<const TokenFile>(path);
    check_vocabulary(path, *file, tokenizer);
    if (file->info().vocabulary_hash == 0) dataset.token_bytes.clear();
    for (std::int64_t d = 0; d < file->documents(); ++d) documents.push_back({file, d});
  }
  return documents;
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

std::uint64_t data_hash(const std::vector<Samples::Document>& documents, std::uint64_t seed) {
  std::uint64_t hash = seed;
  std::vector<std::int32_t> ids;
  for (const Samples::Document& d : documents) {
    ids.resize(static_cast<std::size_t>(d.file->document_tokens(d.index)));
    d.file->read(d.file->document_begin(d.index), ids);
    hash = base::hash64(ids.data(), ids.size() * sizeof(ids[0]), hash + 1);
  }
  return hash;
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
  Split split;
  split.train = documents_of(options.train, options, tokenizer, pool, dataset);
  if (options.validation.empty()) {
    split =
        split_documents(std::move(split.train), options.validation_fraction, options.samples.seed);
  } else {
    split.validation = documents_of(options.validation, options, tokenizer, pool, dataset);
  }
  dataset.hash = data_hash(split.validation, data_hash(split.train, 0));
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
