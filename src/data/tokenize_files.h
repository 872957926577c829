// Documents to a token file: parallel, in order, in bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "data/documents.h"
#include "tokenizer/tokenizer.h"

namespace g2::data {

struct TokenizeReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::uintmax_t text_bytes = 0;
  SkipReport skipped;
};

// Called with the bytes read so far and in all: first with 0, then now and then. May throw to stop.
using TokenizeProgress = std::function<void(std::uintmax_t done, std::uintmax_t total)>;

// Writes BOS, text, EOS of every document of `files` to `output`, in order, whatever the thread
// count. After any error no output is left. Throws DataError when no document was usable.
TokenizeReport tokenize_files(const std::vector<std::filesystem::path>& files,
                              const DocumentOptions& options,
                              const tokenizer::Tokenizer& tokenizer,
                              const std::filesystem::path& output,
                              base::ThreadPool& pool,
                              const TokenizeProgress& on_progress);

// The same with a progress bar; a stop signal ends it with Interrupted.
TokenizeReport tokenize_with_bar(const std::vector<std::filesystem::path>& files,
                                 const DocumentOptions& options,
                                 const tokenizer::Tokenizer& tokenizer,
                                 const std::filesystem::path& output,
                                 base::ThreadPool& pool);

}  // namespace g2::data
