// Which files a list of paths, folders and globs names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace g2::data {

enum class Inputs { kText, kTextAndTokenFiles };

// .jsonl and .ndjson: a document a line.
bool is_json_lines(const std::filesystem::path& path);

// The files of `entries` in order, sorted within each: paths, folders (searched recursively for
// .txt, .jsonl, .ndjson, and .tok where token files are allowed), globs (*, ? and [] in the last
// component). Throws UsageError when an entry names nothing, or a file that would only be mistaken
// for text: Parquet, .json, compressed, or a token file where none is allowed; IoError when a
// folder cannot be read.
std::vector<std::filesystem::path> expand_inputs(const std::vector<std::string>& entries,
                                                 Inputs inputs);

}  // namespace g2::data
