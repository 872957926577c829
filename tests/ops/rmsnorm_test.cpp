// Must catch: w for 1 + w, 1 + w rounded to bf16, a rounding before the gain, eps missing or
// outside the root, dropped tail elements, the second norm of the unrounded sum, a residual
// gradient lost or clobbered in place, grad_w written instead of added to.
#include <gtest/gtest.h>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

struct Size {
  std::int64_t tokens, hidden;
};
constexpr Size kSizes[] = {{0, 5}, {1, 1}, {3, 40}, {65, 17}, {130, 33}, {2, 2304}};
constexpr double kEps = 1e-6;
// Rounding of one stored value from exact arithmetic, and what f32 sums of 2304 squares add.
constexpr double kF32Noise = 1e-6;
double bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-14 : test::unit_roundoff(dtype) + kF32Noise;
}

struct Forward {
  Array y, r;
};
Forward forward(DType dtype, const Array& x, const Array& w, double eps = kEps) {
  const std::int64_t n = x->dim(0), d = x->dim(1);
  Forward out{Array(dtype, {n, d}), Array(work_dtype(dtype), {n})};
  ops().rmsnorm_forward({.x = x, .w = w, .eps = eps, .y = out.y, .r = out.r});
  return out;
}

// Straight from the formula, in f64.
std::vector<double> expected(const std::vector<double>& x,
                             const std::vector<double>& w,
                             double eps,
                             std::vector<double>* r = nullptr) {
  const std::size_t d = w.size();
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size() / d; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < d; ++i) sum += x[row * d + i] * x[row * d + i];
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(d) + eps);
    if (r != nullptr) r->push_back(inverse);
    for (std::size_t i = 0; i < d; ++i) y[row * d + i] = x[row * d + i] * inverse * (1 + w[i]);
  }
  return y;
}

TEST(RmsnormForward, IsOneRoundingFromTheFormula) {
  std::mt19937_64 rng(42);
  for (const DType dtype : test::kFloatTypes) {
    for (const auto [tokens, hidden] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << tokens << " d=" << hidden);
      const Array x = test::random_array(rng, dtype, {tokens, hidden});
      const Array w = test::random_array(rng, dtype, {hidden}, 0.3);
      const Forward got = forward(dtype, x, w);
      std::vector<double> r;
      const std::vector<double> y = expected(x.values(), w.values(), kEps, &r);
      EXPECT_LE(test::max_relative_error(got.y.values(), y), bound(dtype));
      EXPECT_LE(test::max_relative_error(got.r.values(), r), bound(work_dtype(dtype)));
    }
  }
}

TEST(RmsnormForward, EpsCountsForSmallInputs) {
  std::mt19937_64 rng(1);
  const Array x = test::random_array(rng, DType::kF64, {4, 24}, 1e-3);
  const Array w = test::random_array(rng, DType::kF64, {24}, 0.3);
  EXPECT_LE(test::max_relative_error(forward(DType::kF64, x, w, 1e-5).y.values(),
                                     expected(x.values(), w.values(), 1e-5)),
            1e-14);
  const Array zero(DType::kF32, {1, 3}, {0, 0, 0});
  const Array gain(DType::kF32, {3}, {1, 2, 3});
  EXPECT_EQ(forward(DType::kF32, zero, gain).y.values(), (std::vector<double>{0, 0, 0}));
}

TEST(RmsnormForward, YMayBeX) {
  std::mt19937_64 rng(2);
  Array x = test::random_array(rng, DType::kF32, {5, 19});
  const Array w = test::random_array(rng, DType::kF32, {19});
  const std::vector<double> apart = forward(DType::kF32, x, w).y.values();
  Array r(DType::kF32, {5});
  ops().rmsnorm_forward({.x = x, .w = w, .eps = kEps, .y = x, .r = r});
  EXPECT_EQ(x.values(), apart);
}

TEST(RmsnormAddForward, NormsTheRoundedSum) {
  std::mt19937_64 rng(3);
  for (const DType dtype : test::kFloatTypes) {
    for (const auto [n, d] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << n << " d=" << d);
      const DType work = work_dtype(dtype);
      Array branch = test::random_array(rng, dtype, {n, d});
      Array residual = test::random_array(rng, dtype, {n, d}, 2);
      const Array w_post = test::random_array(rng, dtype, {d}, 0.3);
      const Array w_pre = test::random_array(rng, dtype, {d}, 0.3);
      Array sum(dtype, {n, d}), y(dtype, {n, d}), r_post(work, {n}), r_pre(work, {n});
      RmsnormAddForward p{branch, w_post, residual, w_pre, kEps, sum, y, r_post, r_pre};
      ops().rmsnorm_add_forward(p);
      std::vector<double> want_sum = expected(branch.values(), w_post.values(), kEps);
      const std::vector<double> x = residual.values();
      for (std::size_t i = 0; i < x.size(); ++i) want_sum[i] += x[i];
      // Relative to the terms, since they may cancel: |sum| + |branch part| <= about 10.
      const std::vector<double> got_sum = sum.values();
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(got_sum[i],
                    want_sum[i],
                    bound(dtype) * std::abs(want_sum[i]) + 32 * test::unit_roundoff(work))
            << i;
      }
      // From the stored sum the second norm is one rounding away again.
      const std::vector<double> want_y = expected(got_sum, w_pre.values(), kEps);
      EXPECT_LE(test::max_relative_error(y.values(), want_y), bound(dtype));

      p.sum = residual;  // both in place
      p.y = branch;
      ops().rmsnorm_add_forward(p);
      EXPECT_EQ(residual.values(), got_sum);
      EXPECT_EQ(branch.values(), y.values());
    }
  }
}

struct Backward {
  Array grad_x, grad_w;
};
Backward backward(DType dtype,
                  const Array& grad_y,
                  const Array& x,
                  const Array& w,
                  const Array& r,
                  const Array* residual) {
  const std::int64_t n = x->dim(0), d = x->dim(1);
  Backward out{Array(dtype, {n, d}), Array(work_dtype(dtype), {d})};
  ops().rmsnorm_backward({.grad_y = grad_y,
                          .x = x,
                          .w = w,
                          .r = r,
                          .residual = residual != nullptr ? Tensor(*residual) : Tensor(),
                          .grad_x = out.grad_x,
                          .grad_w = out.grad_w,
                          .accumulate_grad_w = false});
  return out;
}

TEST(RmsnormBackward, IsTheGradientOfForward) {
  std::mt19937_64 rng(4);
  for (const auto [n, d] : {Size{1, 1}, {2, 3}, {130, 7}, {3, 65}}) {
    SCOPED_TRACE(testing::Message() << "N=" << n << " d=" << d);
    const Array x = test::random_array(rng, DType::kF64, {n, d});
    const Array w = test::random_array(rng, DType::kF64, {d}, 0.3);
    const Array grad_y = test::random_array(rng, DType::kF64, {n, d});
    const Array residual = test::random_array(rng, DType::kF64, {n, d});
    constexpr double kLargeEps = 0.5;  // so that a term of eps would show
    const Forward f = forward(DType::kF64, x, w, kLargeEps);
    const Backward got = backward(DType::kF64, grad_y, x, w, f.r, &residual);
    const auto loss = [&](const std::vector<double>& xs, const std::vector<double>& ws) {
      return test::dot(grad_y.values(), expected(xs, ws, kLargeEps)) +
             test::dot(residual.values(), xs);
    };
    EXPECT_LE(
        test::gradient_error(
            [&](const auto& v) { return loss(v, w.values()); }, x.values(), got.grad_x.values()),
        1e-9);
    EXPECT_LE(
        test::gradient_error(
            [&](const auto& v) { return loss(x.values(), v); }, w.values(), got.grad_w.values()),
        1e-9);
  }
}

TEST(RmsnormBackward, F32AndBf16AreNearF64) {
  std::mt19937_64 rng(5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto [n, d] : {Size{1, 3}, {65, 17}, {130, 256}, {0, 4}}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << n << " d=" << d);
      const Array x = test::random_array(rng, dtype, {n, d});
      const Array w = test::random_array(rng, dtype, {d}, 0.3);
      const Array grad_y = test::random_array(rng, dtype, {n, d});
      const Array r = forward(dtype, x, w).r;
      const Backward got = backward(dtype, grad_y, x, w, r, nullptr);
      const auto wide = [](const Array& a) { return test::converted(a, DType::kF64); };
      const Backward want = backward(DType::kF64, wide(grad_y), wide(x), wide(w), wide(r), nullptr);
      EXPECT_LE(test::relative_l2(got.grad_x.values(), want.grad_x.values()), bound(dtype));
      // A sum of 130 products in f32, no rounding to bf16.
      EXPECT_LE(test::relative_l2(got.grad_w.values(), want.grad_w.values()), 1e-6);
    }
  }
}

TEST(RmsnormBackward, AddsToGradWAndWorksInPlace) {
  std::mt19937_64 rng(6);
  const Array x = test::random_array(rng, DType::kF32, {70, 9});
  const Array w = test::random_array(rng, DType::kF32, {9});
  const Array grad_y = test::random_array(rng, DType::kF32, {70, 9});
  Array residual = test::random_array(rng, DType::kF32, {70, 9});
  const Array r = forward(DType::kF32, x, w).r;
  const Backward apart = backward(DType::kF32, grad_y, x, w, r, &residual);
  const Array grad_w(DType::kF32, {9}, std::vector<double>(9, 2.0));
  ops().rmsnorm_backward({.grad_y = grad_y,
                          .x = x,
                          .w = w,
                          .r = r,
                          .residual = residual,
                          .grad_x = residual,
                          .grad_w = grad_w,
                          .accumulate_grad_w = true});
  EXPECT_EQ(residual.values(), apart.grad_x.values());
  const std::vector<double> added = apart.grad_w.values();
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(grad_w.values()[i], 2 + added[i], 1e-5);
}

}  // namespace
}  // namespace g2
