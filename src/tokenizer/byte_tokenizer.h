// The built-in tokenizer: ids 0..3 are pad, eos, bos, unk; a byte b is id 4 + b.
#pragma once

#include "tokenizer/tokenizer.h"

namespace g2::tokenizer {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kFirstByte = 4;

  std::string name() const override { return "byte"; }
  std::int64_t vocab_size() const override { return kFirstByte + 256; }
  SpecialIds special() const override { return {}; }
  std::uint64_t vocabulary_hash() const override;
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  void encode_with_special(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string token_bytes(std::int32_t id) const override;
  std::string piece(std::int32_t id) const override;
  std::optional<std::int32_t> piece_id(std::string_view piece) const override;
};

}  // namespace g2::tokenizer
