// Element types, and the host's own bf16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace g2 {

enum class DType : std::uint8_t { kF32, kBF16, kF64, kI32 };

constexpr std::size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 2;
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

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

// The type in which values of storage type T are computed and accumulated.
template <typename T>
using Work = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr DType work_dtype(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, bf16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kI32;
}

}  // namespace g2
