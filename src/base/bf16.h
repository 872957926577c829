// The host's own bf16; builds without CUDA have no header for one.
#pragma once

#include <bit>
#include <cstdint>

namespace g2 {

// bfloat16: the upper half of an IEEE float. Conversion rounds to nearest, ties to even, and keeps
// NaN a NaN. There is no arithmetic: compute in float, round once.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>(is_nan ? (u >> 16) | 0x40U
                                             : (u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit bf16(double value) : bf16(static_cast<float>(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
  bool operator==(const bf16&) const = default;  // of bits: 0 and -0 differ
};

}  // namespace g2
