// Finds special pieces written out in a text.
#pragma once

#include <array>
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

class SpecialMatcher {
 public:
  SpecialMatcher() = default;
  explicit SpecialMatcher(SpecialPieces pieces);

  // The first occurrence at or after `from`, the longest piece where several start there; length 0:
  // none. Reads nothing behind the match, so that a loop over all matches is linear in the text.
  SpecialMatch find(std::string_view text, std::size_t from) const;

 private:
  SpecialPieces pieces_;  // longest first
  std::array<bool, 256> starts_piece_{};
};

}  // namespace g2::tokenizer
