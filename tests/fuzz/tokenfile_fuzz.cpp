// Any bytes as a token file: either a DataError, or documents whose tokens can all be read.
// Seeds: tests/fuzz/seeds/tokenfile.
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "data/token_file.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto path = g2::fuzz::write_input(data, size, ".tok");
  try {
    const g2::data::TokenFile file(path);
    std::int64_t tokens = 0;
    for (std::int64_t d = 0; d < file.documents(); ++d) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.document_tokens(d)));
      file.read(file.document_begin(d), ids);
      tokens += file.document_tokens(d);
    }
    if (tokens != file.tokens()) std::abort();
  } catch (const g2::base::DataError&) {
  }
  return 0;
}
