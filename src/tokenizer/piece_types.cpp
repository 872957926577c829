#include "tokenizer/piece_types.h"

#include "base/error.h"

namespace g2::tokenizer {
namespace {

// The protocol buffer wire format: fields of a number, a wire type and a value.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }

  struct Field {
    std::uint64_t number;
    std::uint64_t value;      // of a varint
    std::string_view nested;  // of a length-delimited field
  };

  Field next() {
    const std::uint64_t key = varint();
    Field field{key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.nested = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail();
    }
    return field;
  }

 private:
  [[noreturn]] static void fail() {
    throw base::DataError("not a SentencePiece model: damaged protocol buffer");
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) fail();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

constexpr std::uint64_t kModelPieces = 1;  // field numbers of sentencepiece_model.proto
constexpr std::uint64_t kPieceType = 3;

PieceType type_of(std::string_view piece) {
  PieceType type = PieceType::kNormal;
  for (WireReader fields(piece); !fields.done();) {
    const WireReader::Field field = fields.next();
    if (field.number == kPieceType) type = static_cast<PieceType>(field.value);
  }
  return type;
}

}  // namespace

std::vector<PieceType> piece_types(std::string_view serialized_model) {
  std::vector<PieceType> types;
  for (WireReader fields(serialized_model); !fields.done();) {
    const WireReader::Field field = fields.next();
    if (field.number == kModelPieces) types.push_back(type_of(field.nested));
  }
  return types;
}

}  // namespace g2::tokenizer
