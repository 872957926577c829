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
  explicit bf16(double value) : bf16(rounded_to_odd(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
  bool operator==(const bf16&) const = default;  // of bits: 0 and -0 differ

 private:
  // A float between which and `value` no tie of bf16 lies: rounding it once more is rounding once.
  // Toward zero, and an inexact result gets an odd last bit.
  static float rounded_to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    const double back = nearest;
    if (back == value || value != value) return nearest;
    auto u = std::bit_cast<std::uint32_t>(nearest);
    const bool away = value < 0 ? back < value : back > value;
    if (away) --u;
    return std::bit_cast<float>(u | 1U);
  }
};

}  // namespace g2
