#include "base/utf8.h"

#include <cstdint>

namespace g2::base {
namespace {

struct Scan {
  std::size_t length;  // bytes read: a character, or the invalid part
  bool valid;
  bool truncated;  // the text ended inside what may still become a character
};

// The character that starts at `text` (not empty). Table 3-7 of the Unicode standard.
Scan scan(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  std::size_t length = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Scan s = scan(text.substr(i));
    if (!s.valid) return i;
    i += s.length;
  }
  return std::nullopt;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const Scan s = scan(text.substr(i));
    if (s.truncated) return i;
    i += s.length;
  }
  return i;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Scan s = scan(text.substr(i));
    out += s.valid ? text.substr(i, s.length) : std::string_view("\xEF\xBF\xBD");
    i += s.length;
  }
  return out;
}

}  // namespace g2::base
