#include "data/inputs.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/token_file.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;

bool is_wanted(const fs::path& path, Inputs inputs) {
  return path.extension() == ".txt" || is_json_lines(path) ||
         (path.extension() == ".tok" && inputs == Inputs::kTextAndTokenFiles);
}

std::vector<fs::path> files_in(const fs::path& folder, Inputs inputs) {
  std::vector<fs::path> found;
  for (const auto& inside : fs::recursive_directory_iterator(folder)) {
    if (inside.is_regular_file() && is_wanted(inside.path(), inputs)) {
      found.push_back(inside.path());
    }
  }
  return found;
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

// Formats that read as one strange document of text, and how to convert them.
void refuse_other_formats(const fs::path& path, Inputs inputs) {
  const std::string name = path.string();
  const std::string extension = path.extension();
  const std::string lines = fs::path(path).replace_extension(".jsonl").string();
  std::string advice;
  if (extension == ".parquet") {
    advice = cat("is Parquet; convert it: python3 -c \"import pandas; pandas.read_parquet('",
                 name,
                 "').to_json('",
                 lines,
                 "', orient='records', lines=True, force_ascii=False)\"");
  } else if (extension == ".json") {
    advice = cat("is JSON, read is JSON Lines; if it has an object a line, name it ",
                 lines,
                 "; an array: jq -c '.[]' ",
                 name,
                 " > ",
                 lines);
  } else if (extension == ".gz" || extension == ".zst" || extension == ".xz" ||
             extension == ".bz2" || extension == ".zip") {
    advice = "is compressed; unpack it first";
  } else if (inputs == Inputs::kText && is_token_file(path)) {
    advice = "is a token file already; data.train takes it as it is";
  }
  if (!advice.empty()) throw base::UsageError(cat(name, ": ", advice));
}

std::vector<fs::path> expand(const std::string& entry, Inputs inputs) {
  const fs::path path = entry;
  std::vector<fs::path> found;
  if (fs::is_directory(path)) {
    found = files_in(path, inputs);
  } else if (fs::is_regular_file(path)) {
    found.push_back(path);
  } else if (fs::exists(path)) {
    throw base::UsageError(cat(entry, ": is neither a file nor a folder"));
  } else if (entry.find_first_of("*?[") != std::string::npos) {
    found = matches(path);
  }
  std::sort(found.begin(), found.end());
  for (const fs::path& file : found) refuse_other_formats(file, inputs);
  return found;
}

}  // namespace

bool is_json_lines(const fs::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

std::vector<fs::path> expand_inputs(const std::vector<std::string>& entries, Inputs inputs) {
  std::vector<fs::path> files;
  for (const std::string& entry : entries) {
    try {
      const std::vector<fs::path> found = expand(entry, inputs);
      if (found.empty()) {
        throw base::UsageError(cat("data: '",
                                   entry,
                                   "' names no file; give a .txt, .jsonl or .tok file, a folder "
                                   "that holds some, or a glob (quoted on the command line)"));
      }
      files.insert(files.end(), found.begin(), found.end());
    } catch (const fs::filesystem_error& e) {
      throw base::IoError(cat(e.path1().string(), ": cannot read: ", e.code().message()));
    }
  }
  return files;
}

}  // namespace g2::data
