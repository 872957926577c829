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

// Writes BOS, text, EOS of every document of `files` to `output`, in order, whatever the thread
// count. `on_progress(bytes read, bytes in all)` is called now and then and may throw to stop:
// then, as after any error, no output is left. Throws DataError when no document was usable.
TokenizeReport tokenize_files(
    const std::vector<std::filesystem::path>& files,
    const DocumentOptions& options,
    const tokenizer::Tokenizer& tokenizer,
    const std::filesystem::path& output,
    base::ThreadPool& pool,
    const std::function<void(std::uintmax_t, std::uintmax_t)>& on_progress);

}  // namespace g2::data
