// UTF-8, strictly: overlong forms, surrogates and values above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace g2::base {

// Byte offset of the first byte that does not belong to a valid character; none when all is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// Length of the longest prefix that ends between characters, where what follows could still become
// a character when more bytes arrive ("held back"). Invalid bytes are not held back.
std::size_t complete_utf8_prefix(std::string_view text);

// Each maximal invalid part becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace g2::base
