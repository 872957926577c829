// Stands in for sentencepiece_tokenizer.cpp where libsentencepiece was not found.
#include "base/error.h"
#include "base/text.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace g2::tokenizer {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path) {
  throw base::UsageError(
      base::cat(path,
                ": this build has no SentencePiece; install libsentencepiece-dev and "
                "build again, or use the byte tokenizer"));
}

bool has_sentencepiece() {
  return false;
}

}  // namespace g2::tokenizer
