#include "data/tokenize_files.h"

#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "data/token_file.h"

namespace g2::data {
namespace {

// A round reads this much text, encodes it in parallel and writes it: the bound on memory.
constexpr std::size_t kRoundBytes = std::size_t{8} << 20;

}  // namespace

TokenizeReport tokenize_files(const std::vector<std::filesystem::path>& files,
                              const DocumentOptions& options,
                              const tokenizer::Tokenizer& tokenizer,
                              const std::filesystem::path& output,
                              base::ThreadPool& pool,
                              const TokenizeProgress& on_progress) {
  DocumentReader reader(files, options);
  TokenFileWriter writer(
      output, {static_cast<std::uint64_t>(tokenizer.vocab_size()), tokenizer.vocabulary_hash()});
  TokenizeReport report;
  std::vector<std::string> texts;
  std::vector<std::vector<std::int32_t>> ids;
  on_progress(0, reader.bytes_total());
  for (bool more = true; more;) {
    texts.clear();
    std::size_t bytes = 0;
    std::string text;
    while (bytes < kRoundBytes && (more = reader.next(text))) {
      bytes += text.size();
      texts.push_back(std::move(text));
    }
    ids.assign(texts.size(), {});
    pool.run(static_cast<std::int64_t>(texts.size()),
             [&](std::int64_t i) { tokenizer::encode_document(tokenizer, texts[i], ids[i]); });
    for (const auto& document : ids) writer.add_document(document);
    report.text_bytes += bytes;
    on_progress(reader.bytes_read(), reader.bytes_total());
  }
  report.skipped = reader.skipped();
  report.documents = static_cast<std::int64_t>(writer.documents());
  report.tokens = static_cast<std::int64_t>(writer.tokens());
  if (report.documents == 0) {
    const std::string reasons = describe(report.skipped);
    throw base::DataError(base::cat(files.front().string(),
                                    files.size() > 1 ? " and others" : "",
                                    ": no usable document",
                                    reasons.empty() ? "" : ": " + reasons));
  }
  writer.finish();
  return report;
}

TokenizeReport tokenize_with_bar(const std::vector<std::filesystem::path>& files,
                                 const DocumentOptions& options,
                                 const tokenizer::Tokenizer& tokenizer,
                                 const std::filesystem::path& output,
                                 base::ThreadPool& pool) {
  constexpr double kMib = 1 << 20;
  std::optional<base::ProgressBar> bar;
  return tokenize_files(
      files, options, tokenizer, output, pool, [&](std::uintmax_t done, std::uintmax_t total) {
        if (base::stop_requested())
          throw base::Interrupted(
              base::cat(output.string(), ": stopped while tokenizing; nothing was written"));
        if (!bar) bar.emplace("tokenizing", "MiB", static_cast<double>(total) / kMib);
        bar->update(static_cast<double>(done) / kMib);
      });
}

}  // namespace g2::data
