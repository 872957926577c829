// Any bytes as JSON Lines, strict and skipping: either a DataError, or documents of valid UTF-8.
// Seeds: tests/fuzz/seeds/jsonl.
#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"
#include "data/documents.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto path = g2::fuzz::write_input(data, size, ".jsonl");
  for (const bool skip_bad : {false, true}) {
    try {
      g2::data::DocumentReader reader({path}, {.text_key = "text", .skip_bad = skip_bad});
      std::string text;
      while (reader.next(text)) {
        if (text.empty() || g2::base::first_invalid_utf8(text)) std::abort();
      }
    } catch (const g2::base::DataError&) {
      if (skip_bad) std::abort();  // skipping never stops at a bad document
    }
  }
  return 0;
}
