// exp and tanh that compilers turn into vector code inside plain loops: no branches, no calls.
// float: about 1 unit in the last place (tests/ops/simd_math_test.cpp); double: the C library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace g2::cpu {

// e^x. 0 below -87 (the result would be below 1.7e-38), inf above 88.72, NaN for NaN.
inline float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRoundingMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLowest = -87.0F;
  constexpr float kHighest = 88.72283F;
  const float clamped = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float n = (clamped * kLog2E + kRoundingMagic) - kRoundingMagic;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;  // Cephes expf
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // 2^n in two factors: n may be 128, whose power alone is not a float.
  const auto half = static_cast<std::int32_t>(n) >> 1;
  const auto rest = static_cast<std::int32_t>(n) - half;
  const float value =
      p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((rest + 127) << 23);
  const float bounded = x < kLowest ? 0.0F : (x > kHighest ? INFINITY : value);
  return x != x ? x : bounded;
}

inline double fast_exp(double x) {
  return std::exp(x);
}

// tanh(x), odd, exact in relative terms near 0, +-1 for large arguments, NaN for NaN.
inline float fast_tanh(float x) {
  const float a = std::abs(x);
  const float z = x * x;
  float p = -5.70498872745e-3F;  // Cephes tanhf, |x| < 0.625
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float small = x + x * z * p;
  const float large = std::copysign(1.0F - 2.0F / (fast_exp(2.0F * a) + 1.0F), x);
  return a < 0.625F ? small : large;
}

inline double fast_tanh(double x) {
  return std::tanh(x);
}

}  // namespace g2::cpu
