#include "tokenizer/tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/byte_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/special_text.h"

namespace g2::tokenizer {
namespace {

const SpecialPieces& byte_specials() {
  static const SpecialPieces pieces{{"<pad>", 0}, {"<eos>", 1}, {"<bos>", 2}, {"<unk>", 3}};
  return pieces;
}

const SpecialMatcher& byte_matcher() {
  static const SpecialMatcher matcher(byte_specials());
  return matcher;
}

}  // namespace

std::uint64_t ByteTokenizer::vocabulary_hash() const {
  return base::hash64("gemma2_train byte tokenizer, 4 + byte");
}

void ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  // resize() grows by a factor; reserve() would copy all ids again at each call.
  const std::size_t begin = ids.size();
  ids.resize(begin + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    ids[begin + i] = kFirstByte + static_cast<std::uint8_t>(text[i]);
  }
}

void ByteTokenizer::encode_with_special(std::string_view text,
                                        std::vector<std::int32_t>& ids) const {
  std::size_t from = 0;
  for (;;) {
    const SpecialMatch match = byte_matcher().find(text, from);
    encode(text.substr(from, match.position - from), ids);
    if (match.length == 0) return;
    ids.push_back(match.id);
    from = match.position + match.length;
  }
}

std::string ByteTokenizer::token_bytes(std::int32_t id) const {
  return id < kFirstByte || id >= vocab_size() ? ""
                                               : std::string(1, static_cast<char>(id - kFirstByte));
}

std::string ByteTokenizer::piece(std::int32_t id) const {
  for (const auto& [text, special] : byte_specials()) {
    if (special == id) return text;
  }
  const std::string byte = token_bytes(id);
  if (byte.empty()) return "?";
  const auto value = static_cast<std::uint8_t>(byte[0]);
  if (value > 0x20 && value < 0x7F) return byte;
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[value >> 4] + kDigits[value & 15] + ">";
}

std::optional<std::int32_t> ByteTokenizer::piece_id(std::string_view wanted) const {
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    if (piece(id) == wanted) return id;
  }
  return std::nullopt;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  if (spec == "byte") return std::make_unique<ByteTokenizer>();
  std::filesystem::path path = spec;
  if (std::filesystem::is_directory(path)) path /= "tokenizer.model";
  if (!std::filesystem::is_regular_file(path)) {
    throw base::UsageError(base::cat("tokenizer '",
                                     spec,
                                     "': no such file, and no folder that holds tokenizer.model; "
                                     "give \"byte\" or the path of a SentencePiece model"));
  }
  return open_sentencepiece(path.string());
}

void encode_document(const Tokenizer& tokenizer,
                     std::string_view text,
                     std::vector<std::int32_t>& ids) {
  ids.push_back(tokenizer.special().bos);
  tokenizer.encode(text, ids);
  ids.push_back(tokenizer.special().eos);
}

std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return base::replace_invalid_utf8(bytes);
}

std::string StreamDecoder::push(std::int32_t id) {
  held_ += tokenizer_.token_bytes(id);
  const std::size_t complete = base::complete_utf8_prefix(held_);
  const std::string text = base::replace_invalid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return text;
}

std::string StreamDecoder::finish() {
  const std::string text = base::replace_invalid_utf8(held_);
  held_.clear();
  return text;
}

}  // namespace g2::tokenizer
