#include "data/token_cache.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "data/tokenize_files.h"

namespace g2::data {
namespace {

namespace fs = std::filesystem;
using base::cat;

std::string cache_key(const std::vector<fs::path>& files,
                      const DocumentOptions& options,
                      const tokenizer::Tokenizer& tokenizer) {
  std::string text = cat(base::hex64(tokenizer.vocabulary_hash()),
                         "\n",
                         options.text_key,
                         "\n",
                         options.skip_bad,
                         "\n");
  for (const fs::path& file : files) {
    try {
      text += cat(fs::absolute(file).string(),
                  "\n",
                  fs::file_size(file),
                  "\n",
                  fs::last_write_time(file).time_since_epoch().count(),
                  "\n");
    } catch (const fs::filesystem_error& e) {
      throw base::IoError(cat(file.string(), ": cannot read: ", e.code().message()));
    }
  }
  return base::hex64(base::hash64(text));
}

std::string note_text(const std::vector<fs::path>& files, const SkipReport& skipped) {
  nlohmann::ordered_json note;
  for (const fs::path& file : files) note["files"].push_back(fs::absolute(file).string());
  note["skipped"] = nlohmann::ordered_json::object();
  for (const auto& [reason, entry] : skipped) {
    note["skipped"][reason] = {{"count", entry.count}, {"first", entry.first}};
  }
  return note.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

SkipReport read_note(const fs::path& path) {
  SkipReport skipped;
  try {
    const auto note = nlohmann::json::parse(base::read_file(path));
    for (const auto& [reason, entry] : note.at("skipped").items()) {
      skipped[reason] = {entry.at("count").get<std::int64_t>(), entry.at("first")};
    }
  } catch (const nlohmann::json::exception&) {
    throw base::DataError(cat(path.string(), ": not the note of a token file"));
  }
  return skipped;
}

// None when the pair is not there or not whole.
std::optional<CachedTokens> find(const fs::path& tokens, const fs::path& note) {
  if (!fs::exists(tokens) || !fs::exists(note)) return std::nullopt;
  try {
    return CachedTokens{std::make_shared<const TokenFile>(tokens), read_note(note)};
  } catch (const base::DataError& e) {
    base::log_warning(cat("tokenizing anew: ", e.what()));
    return std::nullopt;
  }
}

}  // namespace

CachedTokens cached_tokens(const std::vector<fs::path>& files,
                           const DocumentOptions& options,
                           const tokenizer::Tokenizer& tokenizer,
                           const fs::path& folder,
                           base::ThreadPool& pool) {
  const std::string key = cache_key(files, options, tokenizer);
  const fs::path tokens = folder / (key + ".tok");
  const fs::path note = folder / (key + ".json");
  if (auto found = find(tokens, note)) return *found;
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure)
    throw base::FolderError(cat(folder.string(), ": cannot create: ", failure.message()));
  const TokenizeReport report = tokenize_with_bar(files, options, tokenizer, tokens, pool);
  base::write_file_atomic(note, note_text(files, report.skipped));
  return {std::make_shared<const TokenFile>(tokens), report.skipped};
}

}  // namespace g2::data
