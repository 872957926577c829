// The type of each piece of a SentencePiece model. The library's interface tells control, unknown
// and byte pieces, but not user-defined ones; they are read from the serialised model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace g2::tokenizer {

// As in sentencepiece_model.proto.
enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// One type a piece, in id order. Throws DataError when the bytes are no serialised ModelProto.
std::vector<PieceType> piece_types(std::string_view serialized_model);

}  // namespace g2::tokenizer
