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
  std::string first;  // "corpus.jsonl:17:5: not UTF-8 (byte offset 2041)"
};
using SkipReport = std::map<std::string, SkippedReason>;

// Adds the counts of `more`; the first example stays.
void add(SkipReport& report, const SkipReport& more);

struct DocumentOptions {
  std::string text_key = "text";  // of a JSON Lines object
  bool skip_bad = false;  // false: the first bad document is a DataError naming file and line
};

class DocumentReader {
 public:
  // .jsonl and .ndjson hold a document a line, every other file is one document. Throws IoError
  // naming a file that cannot be read.
  DocumentReader(std::vector<std::filesystem::path> files, DocumentOptions options);

  // The next document's text; false at the end. A byte-order mark is ignored; so are blank lines
  // and Windows line ends of JSON Lines, and in a text file \r\n reads as \n. Bad is a document
  // that is not UTF-8, white space only, or without a string under the key. Holds one document in
  // memory.
  bool next(std::string& text);

  const SkipReport& skipped() const { return skipped_; }
  std::uintmax_t bytes_read() const { return bytes_read_; }
  std::uintmax_t bytes_total() const { return bytes_total_; }

 private:
  bool next_line(std::string& text);
  bool next_file(std::string& text);
  bool parse_line(const std::string& line, std::string& text);
  bool is_utf8(const std::string& text);
  bool accept(const std::string& text);
  void reject(const std::string& reason, const std::string& place, const std::string& detail);
  std::string where() const;
  const std::filesystem::path& path() const { return files_[file_]; }

  std::vector<std::filesystem::path> files_;
  DocumentOptions options_;
  std::size_t file_ = 0;
  bool open_ = false;  // files_[file_] is being read
  std::ifstream lines_;
  std::int64_t line_ = 0;          // from 1; 0: the whole file is the document
  std::uintmax_t line_begin_ = 0;  // byte offsets in the file: of this line, of the next
  std::uintmax_t next_begin_ = 0;
  std::uintmax_t bytes_read_ = 0;
  std::uintmax_t bytes_total_ = 0;
  SkipReport skipped_;
};

// "3 x bad JSON (first: corpus.jsonl:17: ...)", for logs; "" when nothing was skipped.
std::string describe(const SkipReport& report);

}  // namespace g2::data
