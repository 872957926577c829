// Documents of text files and JSON Lines, one after another, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace g2::data {

// What was left out and why: "bad UTF-8", "bad JSON", "key missing", "not a string", "empty
// document".
struct SkippedReason {
  std::int64_t count = 0;
  std::string first;  // "corpus.jsonl:17: byte 5 is not UTF-8"
};
using SkipReport = std::map<std::string, SkippedReason>;

// Files of a list of paths, folders (searched recursively) and globs (* and ? in the last
// component), sorted within each entry. Of folders: .txt, .jsonl, .tok. Throws UsageError when an
// entry names nothing.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& entries);

struct DocumentOptions {
  std::string text_key = "text";  // of a JSON Lines object
  bool skip_bad = false;  // false: the first bad document is a DataError naming file and line
};

class DocumentReader {
 public:
  // .jsonl and .ndjson hold a document a line, every other file is one document.
  DocumentReader(std::vector<std::filesystem::path> files, DocumentOptions options);

  // The next document's text; false at the end. A byte-order mark and Windows line ends of JSON
  // Lines are ignored; blank lines are no documents.
  bool next(std::string& text);

  const SkipReport& skipped() const { return skipped_; }
  std::uintmax_t bytes_read() const { return bytes_read_; }
  std::uintmax_t bytes_total() const { return bytes_total_; }

 private:
  bool next_line(std::string& text);
  bool next_file(std::string& text);
  bool parse_line(const std::string& line, std::string& text);
  bool accept(const std::string& text, std::size_t offset);
  void reject(const std::string& reason, const std::string& detail);
  std::string where() const;

  std::vector<std::filesystem::path> files_;
  DocumentOptions options_;
  std::size_t file_ = 0;
  std::ifstream lines_;
  std::int64_t line_ = 0;  // 0: a whole file is the document
  std::uintmax_t bytes_read_ = 0;
  std::uintmax_t bytes_total_ = 0;
  SkipReport skipped_;
};

// "3 x bad JSON (first: corpus.jsonl:17: ...)", for logs; "" when nothing was skipped.
std::string describe(const SkipReport& report);

}  // namespace g2::data
