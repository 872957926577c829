// Must catch: the erf form, SiLU, gate and up exchanged, a wrong derivative, the product rounded
// twice in bf16, NaN for large gates, dropped tail elements.
#include <gtest/gtest.h>

#include <numbers>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

double gelu(double g) {
  return g / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
}

std::vector<double> expected(const std::vector<double>& gate_up, std::size_t f) {
  std::vector<double> m;
  for (std::size_t row = 0; row < gate_up.size() / (2 * f); ++row) {
    for (std::size_t i = 0; i < f; ++i) {
      m.push_back(gelu(gate_up[row * 2 * f + i]) * gate_up[row * 2 * f + f + i]);
    }
  }
  return m;
}

struct Size {
  std::int64_t tokens, f;
};
constexpr Size kSizes[] = {{0, 3}, {1, 1}, {3, 17}, {2, 1024}, {131, 56}};

// |error of m|: 1 + tanh loses relative digits for negative gates (about e^(1.6 |g|) ulps, as in
// every formula of this form), hence a part relative to g up.
double forward_bound(DType dtype, double m, double g, double up) {
  return test::unit_roundoff(dtype) * std::abs(m) +
         8 * test::unit_roundoff(work_dtype(dtype)) * std::abs(g * up);
}

TEST(GegluForward, IsOneRoundingFromTheFormula) {
  std::mt19937_64 rng(1);
  for (const DType dtype : test::kFloatTypes) {
    for (const auto [n, f] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << n << " f=" << f);
      const Array gate_up = test::random_array(rng, dtype, {n, 2 * f}, 2);
      const Array m(dtype, {n, f});
      ops().geglu_forward({gate_up, m});
      const std::vector<double> in = gate_up.values(), got = m.values();
      const std::vector<double> want = expected(in, static_cast<std::size_t>(f));
      for (std::int64_t i = 0; i < n * f; ++i) {
        const std::int64_t at = i / f * 2 * f + i % f;
        ASSERT_NEAR(got[i], want[i], forward_bound(dtype, want[i], in[at], in[at + f])) << i;
      }
    }
  }
}

TEST(GegluForward, LargeGatesSaturate) {
  for (const DType dtype : test::kFloatTypes) {
    const Array gate_up(dtype, {2, 4}, {1e10, -1e10, 2, 2, 100, -100, -3, 5});
    const Array m(dtype, {2, 2});
    ops().geglu_forward({gate_up, m});
    const std::vector<double> got = m.values();
    EXPECT_NEAR(got[0], 2e10, 2e10 * test::unit_roundoff(dtype));
    EXPECT_EQ(got[1], 0);
    EXPECT_NEAR(got[2], -300, 300 * test::unit_roundoff(dtype));
    EXPECT_EQ(got[3], 0);
  }
}

TEST(GegluBackward, IsTheGradientOfForward) {
  std::mt19937_64 rng(2);
  for (const auto [n, f] : {Size{1, 1}, {3, 17}, {131, 5}}) {
    const Array gate_up = test::random_array(rng, DType::kF64, {n, 2 * f}, 1.5);
    const Array grad_m = test::random_array(rng, DType::kF64, {n, f});
    const Array grad(DType::kF64, {n, 2 * f});
    ops().geglu_backward({grad_m, gate_up, grad});
    EXPECT_LE(test::gradient_error(
                  [&](const auto& v) {
                    return test::dot(grad_m.values(), expected(v, static_cast<std::size_t>(f)));
                  },
                  gate_up.values(),
                  grad.values()),
              1e-9);
    ops().geglu_backward({grad_m, gate_up, gate_up});  // in place
    EXPECT_EQ(gate_up.values(), grad.values());
  }
}

TEST(GegluBackward, F32AndBf16AreNearF64) {
  std::mt19937_64 rng(3);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto [n, f] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << n << " f=" << f);
      const Array gate_up = test::random_array(rng, dtype, {n, 2 * f}, 2);
      const Array grad_m = test::random_array(rng, dtype, {n, f});
      const Array got(dtype, {n, 2 * f}), want(DType::kF64, {n, 2 * f});
      ops().geglu_backward({grad_m, gate_up, got});
      ops().geglu_backward(
          {test::converted(grad_m, DType::kF64), test::converted(gate_up, DType::kF64), want});
      // One rounding, and a dozen in f32 before it.
      EXPECT_LE(test::relative_l2(got.values(), want.values()),
                test::unit_roundoff(dtype) + 12 * test::unit_roundoff(DType::kF32));
    }
  }
}

}  // namespace
}  // namespace g2
