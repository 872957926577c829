// SentencePiece models through libsentencepiece.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace g2::tokenizer {

// Throws DataError naming the file when it is no SentencePiece model or breaks Gemma's rules, and
// UsageError in a build without libsentencepiece.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path);

}  // namespace g2::tokenizer
