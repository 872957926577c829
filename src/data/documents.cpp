#include "data/documents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/inputs.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

void drop_carriage_returns(std::string& text) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[kept++] = text[i];
  }
  text.resize(kept);
}

}  // namespace

DocumentReader::DocumentReader(std::vector<fs::path> files, DocumentOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  for (const fs::path& file : files_) {
    std::error_code failure;
    bytes_total_ += fs::file_size(file, failure);
    if (failure) throw base::IoError(cat(file.string(), ": cannot read: ", failure.message()));
  }
}

bool DocumentReader::next(std::string& text) {
  while (file_ < files_.size()) {
    if (is_json_lines(path()) ? next_line(text) : next_file(text)) return true;
    open_ = false;
    ++file_;
  }
  return false;
}

// The next good document of the current JSON Lines file; false at its end.
bool DocumentReader::next_line(std::string& text) {
  if (!open_) {
    errno = 0;
    lines_ = std::ifstream(path(), std::ios::binary);
    if (!lines_) throw base::IoError(cat(path().string(), ": cannot open: ", std::strerror(errno)));
    open_ = true;
    line_ = 0;
    next_begin_ = 0;
  }
  std::string line;
  while (std::getline(lines_, line)) {
    const std::size_t bytes = line.size() + (lines_.eof() ? 0 : 1);
    line_begin_ = next_begin_;
    next_begin_ += bytes;
    bytes_read_ += bytes;
    ++line_;
    if (parse_line(line, text)) return true;
  }
  if (lines_.bad()) throw base::IoError(cat(where(), ": cannot read"));
  return false;
}

// False for what is no document: a blank line, or a bad one, which is counted.
bool DocumentReader::parse_line(const std::string& line, std::string& text) {
  if (!is_utf8(line)) return false;
  const bool marked = line_ == 1 && line.starts_with(kByteOrderMark);
  const std::string_view content =
      std::string_view(line).substr(marked ? kByteOrderMark.size() : 0);
  if (is_blank(content)) return false;
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(content);
  } catch (const nlohmann::json::parse_error& e) {
    const std::size_t column = e.byte + line.size() - content.size();
    reject("bad JSON", cat(where(), ":", column), "not JSON; expected one object a line");
    return false;
  } catch (const nlohmann::json::exception&) {
    reject("bad JSON", where(), "holds a number that is out of range");
    return false;
  }
  const auto value = object.is_object() ? object.find(options_.text_key) : object.end();
  if (!object.is_object() || value == object.end()) {
    std::vector<std::string> keys;
    if (object.is_object()) {
      for (const auto& item : object.items()) keys.push_back(item.key());
    }
    reject("key missing",
           where(),
           cat("no key '",
               options_.text_key,
               "' (data.text_key)",
               base::did_you_mean(options_.text_key, keys)));
    return false;
  }
  if (!value->is_string()) {
    reject("not a string",
           where(),
           cat("'", options_.text_key, "' is a ", value->type_name(), ", expected a string"));
    return false;
  }
  text = value->get<std::string>();
  return accept(text);
}

bool DocumentReader::next_file(std::string& text) {
  if (open_) return false;  // a file gives one document: this call only ends it
  open_ = true;
  line_ = 0;
  line_begin_ = 0;
  text = base::read_file(path());
  bytes_read_ += text.size();
  if (!is_utf8(text)) return false;
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  drop_carriage_returns(text);
  return accept(text);
}

bool DocumentReader::is_utf8(const std::string& text) {
  const auto bad = base::first_invalid_utf8(text);
  if (!bad) return true;
  const std::string_view before = std::string_view(text).substr(0, *bad);
  const std::size_t line_end = before.rfind('\n');
  const std::size_t column = line_end == std::string_view::npos ? *bad + 1 : *bad - line_end;
  const std::int64_t line = line_ > 0 ? line_ : std::count(before.begin(), before.end(), '\n') + 1;
  const bool utf16 =
      line_begin_ == 0 && (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"));
  reject("bad UTF-8",
         cat(path().string(), ":", line, ":", column),
         cat("not UTF-8 (byte offset ",
             line_begin_ + *bad,
             ")",
             utf16 ? ", but UTF-16 by its byte-order mark: convert it with iconv" : ""));
  return false;
}

bool DocumentReader::accept(const std::string& text) {
  if (!is_blank(text)) return true;
  reject("empty document", where(), "the document is empty");
  return false;
}

std::string DocumentReader::where() const {
  return line_ > 0 ? cat(path().string(), ":", line_) : path().string();
}

void DocumentReader::reject(const std::string& reason,
                            const std::string& place,
                            const std::string& detail) {
  const std::string message = cat(place, ": ", detail);
  if (!options_.skip_bad) {
    throw base::DataError(message +
                          "; repair it, or skip bad documents (data.skip_bad, --skip-bad)");
  }
  SkippedReason& entry = skipped_[reason];
  if (entry.count++ == 0) entry.first = message;
}

void add(SkipReport& report, const SkipReport& more) {
  for (const auto& [reason, entry] : more) {
    SkippedReason& mine = report[reason];
    if (mine.count == 0) mine.first = entry.first;
    mine.count += entry.count;
  }
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
