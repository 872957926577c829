// Finds special pieces written out in a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace g2::tokenizer {

using SpecialPieces = std::vector<std::pair<std::string, std::int32_t>>;

struct SpecialMatch {
  std::size_t position;
  std::size_t length;
  std::int32_t id;
};

// The first occurrence at or after `from`, the longest piece where several start there; length 0:
// none.
inline SpecialMatch find_special(const SpecialPieces& pieces,
                                 std::string_view text,
                                 std::size_t from) {
  SpecialMatch best{std::string_view::npos, 0, -1};
  for (const auto& [piece, id] : pieces) {
    const std::size_t at = text.find(piece, from);
    if (at == std::string_view::npos) continue;
    if (at < best.position || (at == best.position && piece.size() > best.length)) {
      best = {at, piece.size(), id};
    }
  }
  return best;
}

}  // namespace g2::tokenizer
