// gemma2_train tokenize: text to a token file.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "data/inputs.h"
#include "data/token_file.h"
#include "data/tokenize_files.h"

namespace g2::cli {
namespace {

using base::cat;

constexpr std::int64_t kMostThreads = 4096;

// A piece on one line: line ends and other control characters as C writes them.
std::string printable(const std::string& piece) {
  std::string text;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      std::array<char, 5> code{};
      std::snprintf(code.data(), code.size(), "\\x%02X", byte);
      text += code.data();
    } else {
      text += c;
    }
  }
  return text;
}

// The first documents as pieces and ids, to see what training will see.
void show(const std::string& path, const tokenizer::Tokenizer& tokenizer, std::int64_t documents) {
  const data::TokenFile file(path);
  for (std::int64_t d = 0; d < std::min(documents, file.documents()); ++d) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.document_tokens(d)));
    file.read(file.document_begin(d), ids);
    std::printf("document %lld, %zu tokens:\n", static_cast<long long>(d), ids.size());
    for (const std::int32_t id : ids)
      std::printf(" %s(%d)", printable(tokenizer.piece(id)).c_str(), id);
    std::puts("");
  }
}

int import_raw(const std::vector<std::string>& inputs,
               const std::string& output,
               std::optional<std::int64_t> vocab,
               std::int64_t bos) {
  if (inputs.size() != 1 || !vocab || *vocab < 1) {
    throw base::UsageError("--raw-u32 takes one input file, and --vocab-size N");
  }
  if (bos < 0 || bos >= *vocab) {
    throw base::UsageError(
        cat("--bos is ", bos, ", must be an id of the vocabulary: 0 to ", *vocab - 1));
  }
  data::import_raw_u32(
      inputs[0], output, static_cast<std::uint64_t>(*vocab), static_cast<std::int32_t>(bos));
  const data::TokenFile file(output);
  std::printf("%s: %lld documents, %lld tokens\n",
              output.c_str(),
              static_cast<long long>(file.documents()),
              static_cast<long long>(file.tokens()));
  return base::kOk;
}

}  // namespace

int tokenize(Args args) {
  std::vector<std::string> inputs;
  std::string output;
  std::string spec = "byte";
  data::DocumentOptions documents;
  std::int64_t threads = 0;
  std::int64_t shown = 0;
  bool raw = false;
  std::optional<std::int64_t> vocab;
  std::int64_t bos = 2;
  Options options("tokenize",
                  "Writes the documents of text files as a token file, BOS and EOS around each.");
  options.add("input",
              inputs,
              ".txt (one document a file), .jsonl (one a line), folders or quoted globs",
              Need::kRequired);
  options.add("-o,--output", output, "token file to write (.tok)", Need::kRequired);
  options.add(
      "--tokenizer", spec, "'byte', a SentencePiece model, or a folder that holds tokenizer.model");
  options.add("--text-key", documents.text_key, "key of the text in JSON Lines");
  options.flag("--skip-bad",
               documents.skip_bad,
               "leave bad documents out and count them, instead of stopping");
  options.add("--threads", threads, "0: one a processor");
  options.add("--show", shown, "print the first N documents as pieces and ids");
  options.flag(
      "--raw-u32", raw, "the input is raw little-endian u32 ids; a document begins at each BOS");
  options.add("--vocab-size", vocab, "of --raw-u32");
  options.add("--bos", bos, "BOS id of --raw-u32");
  if (!options.parse(args)) return base::kOk;
  if (raw) return import_raw(inputs, output, vocab, bos);
  if (threads < 0 || threads > kMostThreads) {
    throw base::UsageError(cat("--threads is ", threads, ", must be from 0 to ", kMostThreads));
  }

  base::install_stop_handlers();
  const auto tokenizer = tokenizer::open_tokenizer(spec);
  base::ThreadPool pool(static_cast<int>(threads));
  const data::TokenizeReport report = data::tokenize_with_bar(
      data::expand_inputs(inputs, data::Inputs::kText), documents, *tokenizer, output, pool);
  std::printf("%s: %lld documents, %lld tokens, %.2f bytes a token\n",
              output.c_str(),
              static_cast<long long>(report.documents),
              static_cast<long long>(report.tokens),
              static_cast<double>(report.text_bytes) / static_cast<double>(report.tokens));
  if (!report.skipped.empty())
    std::printf("left out: %s\n", data::describe(report.skipped).c_str());
  if (shown > 0) show(output, *tokenizer, shown);
  return base::kOk;
}

}  // namespace g2::cli
