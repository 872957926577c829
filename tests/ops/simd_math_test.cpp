// Must catch: a polynomial or range reduction with too few digits, tanh that loses digits near 0 or
// is NaN for large arguments, exp that is not 0 far below, NaN or sign lost.
#include "cpu/simd_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace g2::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// |got - want| in units of the last place of a float near `want`.
double ulps(float got, double want) {
  const float near = std::abs(static_cast<float>(want));
  const double unit = static_cast<double>(std::nextafter(near, kInfinity)) - near;
  return std::abs(got - want) / unit;
}

// Every 4099th float of both signs with |x| <= largest, and the sign of the worst error's place.
template <typename Function, typename Reference>
void expect_ulps(float largest, double bound, const Function& function, const Reference& exact) {
  double worst = 0;
  float where = 0;
  const auto end = std::bit_cast<std::uint32_t>(largest);
  for (std::uint32_t bits = 0; bits <= end; bits += 4099) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const float x = std::bit_cast<float>(bits | sign);
      const double error = ulps(function(x), exact(static_cast<double>(x)));
      if (!(error <= worst)) {
        worst = error;
        where = x;
      }
    }
  }
  EXPECT_LE(worst, bound) << "at " << where;
}

TEST(FastExp, IsWithinAnUlpWhereTheResultIsNormal) {
  const auto exact = [](double x) { return std::exp(x); };
  expect_ulps(
      87.0F, 1.01, [](float x) { return fast_exp(x); }, exact);
  expect_ulps(
      87.0F, 1.01, [](float x) { return exp_within(x); }, exact);
}

TEST(FastExp, EndsAndNan) {
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_EQ(fast_exp(-0.0F), 1.0F);
  for (const float x : {-87.1F, -88.0F, -200.0F, -1e30F, -kInfinity}) EXPECT_EQ(fast_exp(x), 0.0F);
  EXPECT_LE(ulps(fast_exp(88.0F), std::exp(88.0)), 1.01);
  EXPECT_TRUE(std::isnan(fast_exp(kNan)));
  EXPECT_TRUE(std::isnan(exp_within(kNan)));
  // A NaN with every payload bit set: its bits must not leak into an exponent.
  EXPECT_TRUE(std::isnan(exp_within(std::bit_cast<float>(0x7fffffffU))));
  EXPECT_TRUE(std::isnan(fast_tanh(std::bit_cast<float>(0xffffffffU))));
}

TEST(FastTanh, IsWithinTwoAndAHalfUlpsOfEveryFloat) {
  expect_ulps(
      std::numeric_limits<float>::max(),
      2.5,
      [](float x) { return fast_tanh(x); },
      [](double x) { return std::tanh(x); });
}

TEST(FastTanh, EndsSignsAndNan) {
  EXPECT_EQ(fast_tanh(kInfinity), 1.0F);
  EXPECT_EQ(fast_tanh(-kInfinity), -1.0F);
  EXPECT_EQ(fast_tanh(3e38F), 1.0F);
  EXPECT_TRUE(std::signbit(fast_tanh(-0.0F)));
  EXPECT_FALSE(std::signbit(fast_tanh(0.0F)));
  EXPECT_TRUE(std::isnan(fast_tanh(kNan)));
  for (float x = 1e-40F; x < 20; x *= 1.01F) {
    ASSERT_LE(fast_tanh(x), 1.0F) << x;
    ASSERT_EQ(fast_tanh(-x), -fast_tanh(x)) << x;
  }
}

}  // namespace
}  // namespace g2::cpu
