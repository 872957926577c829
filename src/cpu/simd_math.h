// exp and tanh that compilers turn into vector code inside plain loops: no branches, no calls.
// float: within 2.5 units in the last place (tests/ops/simd_math_test.cpp); double: the C
// library's. NaN gives NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace g2::cpu {

// x = n ln 2 + r with |r| <= ln(2) / 2.
struct ExpParts {
  std::uint32_t exponent;  // n << 23, modulo 2^32: what 2^n adds to the bits of a float
  float expm1_r;           // e^r - 1
};

inline ExpParts exp_parts(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRoundingMagic = 12582912.0F;  // 1.5 * 2^23: the sum's low bits hold n
  const float shifted = x * kLog2E + kRoundingMagic;
  const float n = shifted - kRoundingMagic;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;  // Cephes expf: (e^r - 1 - r) / r^2
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  return {std::bit_cast<std::uint32_t>(shifted) << 23, p * (r * r) + r};
}

inline constexpr std::uint32_t kFloatOneBits = std::bit_cast<std::uint32_t>(1.0F);

// e^x for -87 <= x <= 88.
inline float exp_within(float x) {
  const ExpParts e = exp_parts(x);
  // A product, not a sum of bits: NaN then stays NaN.
  return (1.0F + e.expm1_r) * std::bit_cast<float>(kFloatOneBits + e.exponent);
}

inline double exp_within(double x) {
  return std::exp(x);
}

// e^x for x <= 88; 0 below -87 (the result would be below 1.7e-38).
inline float fast_exp(float x) {
  const float value = exp_within(x);
  return x < -87.0F ? 0.0F : value;
}

inline double fast_exp(double x) {
  return std::exp(x);
}

// (e^2|x| - 1) / (e^2|x| + 1) with x's sign: no digits are lost near 0.
inline float fast_tanh(float x) {
  constexpr float kOne = 9.02F;  // from here on tanh rounds to 1
  const float a = std::abs(x);
  const ExpParts e = exp_parts(2.0F * (kOne < a ? kOne : a));
  const float power = std::bit_cast<float>(kFloatOneBits + e.exponent);
  const float expm1 = power * e.expm1_r + (power - 1.0F);
  return std::copysign(expm1 / (expm1 + 2.0F), x);
}

inline double fast_tanh(double x) {
  return std::tanh(x);
}

}  // namespace g2::cpu
