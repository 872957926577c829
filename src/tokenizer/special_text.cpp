#include "tokenizer/special_text.h"

#include <algorithm>

namespace g2::tokenizer {

SpecialMatcher::SpecialMatcher(SpecialPieces pieces) : pieces_(std::move(pieces)) {
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) {
    return a.first.size() > b.first.size();
  });
  for (const auto& [piece, id] : pieces_) {
    starts_piece_[static_cast<std::uint8_t>(piece.front())] = true;
  }
}

SpecialMatch SpecialMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!starts_piece_[static_cast<std::uint8_t>(text[at])]) continue;
    const std::string_view rest = text.substr(at);
    for (const auto& [piece, id] : pieces_) {
      if (rest.starts_with(piece)) return {at, piece.size(), id};
    }
  }
  return {text.size(), 0, -1};
}

}  // namespace g2::tokenizer
