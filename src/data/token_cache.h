// Text as a token file in a cache folder: made once, found again.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

namespace g2::data {

struct CachedTokens {
  std::shared_ptr<const TokenFile> file;
  SkipReport skipped;  // when the file was made
};

// <folder>/<key>.tok holds the documents of `files`, <key>.json says which files they came from and
// what was left out. The key covers each file's path, size and modification time, the document
// options and the vocabulary: a changed text is tokenised again. A damaged or half-made pair is
// made anew, with a warning. Several processes may share a folder. Throws FolderError when the
// folder cannot be made, Interrupted on a stop signal, and what tokenize_files() throws.
CachedTokens cached_tokens(const std::vector<std::filesystem::path>& files,
                           const DocumentOptions& options,
                           const tokenizer::Tokenizer& tokenizer,
                           const std::filesystem::path& folder,
                           base::ThreadPool& pool);

}  // namespace g2::data
