#include "data/documents.h"

#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_json_lines(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

bool is_known(const fs::path& path) {
  return path.extension() == ".txt" || is_json_lines(path) || path.extension() == ".tok";
}

std::vector<fs::path> matches(const fs::path& pattern) {
  std::vector<fs::path> found;
  const fs::path folder = pattern.parent_path().empty() ? "." : pattern.parent_path();
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() &&
        fnmatch(pattern.filename().c_str(), entry.path().filename().c_str(), 0) == 0) {
      found.push_back(pattern.parent_path() / entry.path().filename());
    }
  }
  return found;
}

std::vector<fs::path> expand(const std::string& entry) {
  const fs::path path = entry;
  std::vector<fs::path> found;
  if (fs::is_directory(path)) {
    for (const auto& inside : fs::recursive_directory_iterator(path)) {
      if (inside.is_regular_file() && is_known(inside.path())) found.push_back(inside.path());
    }
  } else if (fs::exists(path)) {
    found.push_back(path);
  } else if (entry.find_first_of("*?[") != std::string::npos) {
    found = matches(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

std::vector<fs::path> expand_inputs(const std::vector<std::string>& entries) {
  std::vector<fs::path> files;
  for (const std::string& entry : entries) {
    const std::vector<fs::path> found = expand(entry);
    if (found.empty()) {
      throw base::UsageError(cat("data: '",
                                 entry,
                                 "' names no file; give a .txt, .jsonl or .tok file, a folder "
                                 "that holds some, or a glob (quoted on the command line)"));
    }
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

DocumentReader::DocumentReader(std::vector<fs::path> files, DocumentOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  for (const fs::path& file : files_) bytes_total_ += fs::file_size(file);
}

bool DocumentReader::next(std::string& text) {
  while (file_ < files_.size()) {
    const bool found = is_json_lines(files_[file_]) ? next_line(text) : next_file(text);
    if (found) return true;
    line_ = 0;
    ++file_;
  }
  return false;
}

// The next good document of the current JSON Lines file; false at its end.
bool DocumentReader::next_line(std::string& text) {
  if (line_ == 0) {
    lines_ = std::ifstream(files_[file_], std::ios::binary);
    if (!lines_) throw base::IoError(cat(files_[file_].string(), ": cannot open"));
  }
  std::string line;
  while (std::getline(lines_, line)) {
    bytes_read_ += line.size() + 1;
    if (++line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (is_blank(line)) continue;
    if (parse_line(line, text)) return true;
  }
  if (lines_.bad()) throw base::IoError(cat(where(), ": cannot read"));
  return false;
}

bool DocumentReader::parse_line(const std::string& line, std::string& text) {
  if (const auto bad = base::first_invalid_utf8(line)) {
    reject("bad UTF-8", cat("byte ", *bad + 1, " of the line is not UTF-8"));
    return false;
  }
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (object.is_discarded()) {
    reject("bad JSON", "not a JSON value; expected one object a line");
    return false;
  }
  if (!object.is_object() || !object.contains(options_.text_key)) {
    std::vector<std::string> keys;
    if (object.is_object()) {
      for (const auto& item : object.items()) keys.push_back(item.key());
    }
    reject("key missing",
           cat("no key '",
               options_.text_key,
               "' (data.text_key)",
               base::did_you_mean(options_.text_key, keys)));
    return false;
  }
  const auto& value = object[options_.text_key];
  if (!value.is_string()) {
    reject("not a string",
           cat("'", options_.text_key, "' is a ", value.type_name(), ", expected a string"));
    return false;
  }
  text = value.get<std::string>();
  return accept(text, 0);
}

bool DocumentReader::next_file(std::string& text) {
  if (line_ != 0) return false;  // a file gives one document: this call only ends it
  line_ = -1;
  text = base::read_file(files_[file_]);
  bytes_read_ += text.size();
  std::size_t offset = 0;
  if (text.starts_with(kByteOrderMark)) {
    offset = kByteOrderMark.size();
    text.erase(0, offset);
  }
  return accept(text, offset);
}

bool DocumentReader::accept(const std::string& text, std::size_t offset) {
  if (is_blank(text)) {
    reject("empty document", "the document is empty");
    return false;
  }
  if (const auto bad = base::first_invalid_utf8(text)) {
    reject("bad UTF-8", cat("byte ", *bad + offset, " is not UTF-8"));
    return false;
  }
  return true;
}

std::string DocumentReader::where() const {
  const std::string file = files_[file_].string();
  return line_ > 0 ? cat(file, ":", line_) : file;
}

void DocumentReader::reject(const std::string& reason, const std::string& detail) {
  const std::string message = cat(where(), ": ", detail);
  if (!options_.skip_bad) {
    throw base::DataError(message +
                          "; repair it, or skip bad documents (data.skip_bad, --skip-bad)");
  }
  SkippedReason& entry = skipped_[reason];
  if (entry.count++ == 0) entry.first = message;
}

std::string describe(const SkipReport& report) {
  std::string text;
  for (const auto& [reason, entry] : report) {
    text +=
        cat(text.empty() ? "" : "; ", entry.count, " x ", reason, " (first: ", entry.first, ")");
  }
  return text;
}

}  // namespace g2::data
