// adamw, block_sums_of_squares, clip_factor and cast. Must catch: decay inside the moments, bias
// correction missing or off by a step, the clip factor ignored, eps inside the root, a copy not
// refreshed, squares summed in f32, blocks that depend on the range, a factor above 1, two
// roundings from f64 to bf16.
#include <gtest/gtest.h>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

struct State {
  std::vector<double> master, m, v;
};

State adamw_by_formula(State s, const std::vector<double>& grad, const Adamw& p, double factor) {
  const auto t = static_cast<double>(p.step);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const double g = factor * grad[i];
    s.m[i] = p.beta1 * s.m[i] + (1 - p.beta1) * g;
    s.v[i] = p.beta2 * s.v[i] + (1 - p.beta2) * g * g;
    const double m = s.m[i] / (1 - std::pow(p.beta1, t));
    const double v = s.v[i] / (1 - std::pow(p.beta2, t));
    s.master[i] -= p.learning_rate * (m / (std::sqrt(v) + p.eps) + p.weight_decay * s.master[i]);
  }
  return s;
}

TEST(Adamw, FollowsTheFormulaOverSeveralSteps) {
  std::mt19937_64 rng(1);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const std::int64_t n : {0, 1, 17, 40000}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " n=" << n);
      const Array master = test::random_array(rng, dtype, {n});
      const Array m(dtype, {n}, std::vector<double>(n)), v(dtype, {n}, std::vector<double>(n));
      const Array copy(dtype == DType::kF64 ? DType::kF64 : DType::kBF16, {n});
      const Array factor(DType::kF64, {1}, {0.5});
      State want{master.values(), m.values(), v.values()};
      for (std::int64_t step = 1; step <= 3; ++step) {
        const Array grad = test::random_array(rng, dtype, {n}, 0.1);
        const Adamw p{.master = master,
                      .m = m,
                      .v = v,
                      .grad = grad,
                      .copy = copy,
                      .factor = factor,
                      .learning_rate = 0.01,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-3,
                      .weight_decay = 0.1,
                      .step = step};
        want = adamw_by_formula(want, grad.values(), p, 0.5);
        ops().adamw(p);
      }
      const double bound = 16 * test::unit_roundoff(dtype);
      EXPECT_LE(test::relative_l2(master.values(), want.master), bound);
      EXPECT_LE(test::relative_l2(m.values(), want.m), bound);
      EXPECT_LE(test::relative_l2(v.values(), want.v), bound);
      EXPECT_EQ(copy.values(), test::converted(master, copy->dtype).values());
    }
  }
}

TEST(Adamw, ZeroGradientOnlyDecays) {
  const Array master(DType::kF32, {2}, {1, -2}), zero(DType::kF32, {2}, {0, 0});
  const Array m(DType::kF32, {2}, {0, 0}), v(DType::kF32, {2}, {0, 0});
  const Array factor(DType::kF64, {1}, {1});
  ops().adamw({.master = master,
               .m = m,
               .v = v,
               .grad = zero,
               .copy = {},
               .factor = factor,
               .learning_rate = 0.5,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .eps = 1e-8,
               .weight_decay = 0.25,
               .step = 1});
  EXPECT_EQ(master.values(), (std::vector<double>{0.875, -1.75}));
}

TEST(BlockSumsOfSquares, SumInF64PerBlock) {
  std::mt19937_64 rng(2);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const std::int64_t n : {std::int64_t{0},
                                 std::int64_t{1},
                                 kNormBlock - 1,
                                 kNormBlock,
                                 kNormBlock + 1,
                                 3 * kNormBlock + 5}) {
      const Array x = test::random_array(rng, dtype, {n});
      const std::int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
      const Array sums(DType::kF64, {blocks});
      ops().block_sums_of_squares({x, sums});
      std::vector<double> want(blocks);
      const std::vector<double> values = x.values();
      for (std::int64_t i = 0; i < n; ++i) want[i / kNormBlock] += values[i] * values[i];
      EXPECT_LE(test::max_relative_error(sums.values(), want), 1e-13) << n;  // f32 sums: 1e-5
    }
  }
}

TEST(ClipFactor, ShortensOnlyWhatIsTooLong) {
  const Array blocks(DType::kF64, {3}, {4, 9, 12});  // norm 5
  const auto factor = [&](double max_norm) {
    const Array norm(DType::kF64, {1}), result(DType::kF64, {1});
    ops().clip_factor({blocks, max_norm, norm, result});
    EXPECT_EQ(norm.values()[0], 5);
    return result.values()[0];
  };
  EXPECT_EQ(factor(0), 1);  // off
  EXPECT_EQ(factor(5), 1);
  EXPECT_EQ(factor(7), 1);
  EXPECT_EQ(factor(1), 0.2);
  const Array none(DType::kF64, {0}), norm(DType::kF64, {1}), result(DType::kF64, {1});
  ops().clip_factor({none, 1, norm, result});
  EXPECT_EQ(norm.values()[0], 0);
  EXPECT_EQ(result.values()[0], 1);
}

TEST(Cast, EveryPairRoundsToNearestEvenOnce) {
  // Around a tie of bf16 above 1, where rounding through f32 would end on the tie itself.
  const double tie = 1 + 0x1p-8;
  const std::vector<double> values = {0,
                                      -0.0,
                                      1,
                                      tie,
                                      tie + 0x1p-40,
                                      tie - 0x1p-40,
                                      -tie - 0x1p-40,
                                      1 + 3 * 0x1p-8,
                                      3.3895313892515355e38,
                                      1e-40,
                                      -2.5,
                                      1e30};
  const Array x(DType::kF64, {12}, values);
  const Array f32(DType::kF32, {12}), bf(DType::kBF16, {12}), back(DType::kF64, {12});
  ops().cast({x, bf});
  const std::vector<double> got = bf.values();
  EXPECT_EQ(got[3], 1);
  EXPECT_EQ(got[4], 1 + 0x1p-7);
  EXPECT_EQ(got[5], 1);
  EXPECT_EQ(got[6], -1 - 0x1p-7);
  EXPECT_EQ(got[7], 1 + 0x1p-6);
  EXPECT_EQ(got[8], 3.3895313892515355e38);
  EXPECT_TRUE(std::signbit(got[1]));
  ops().cast({x, f32});
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(f32.values()[i], static_cast<double>(static_cast<float>(values[i])));
  }
  for (const Array* from : {&f32, &bf}) {  // widening is exact
    ops().cast({*from, back});
    EXPECT_EQ(back.values(), from->values());
  }
  const Array again(DType::kBF16, {12}), same(DType::kF32, {12});
  ops().cast({bf, again});
  EXPECT_TRUE(again.bytes() == bf.bytes());
  ops().cast({bf, same});
  EXPECT_EQ(same.values(), got);
  ops().cast({same, again});
  EXPECT_TRUE(again.bytes() == bf.bytes());
}

TEST(Cast, KeepsNanAndInfinity) {
  const Array x(DType::kF64, {4}, {NAN, INFINITY, -INFINITY, 1e300});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Array y(dtype, {4});
    ops().cast({x, y});
    const std::vector<double> got = y.values();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[1], INFINITY);
    EXPECT_EQ(got[2], -INFINITY);
    EXPECT_EQ(got[3], INFINITY);
  }
}

TEST(Cast, LongRangesAreCutBetweenElements) {
  std::mt19937_64 rng(3);
  const Array x = test::random_array(rng, DType::kF32, {50001}), y(DType::kBF16, {50001});
  ops().cast({x, y});
  EXPECT_EQ(y.values(), test::converted(x, DType::kBF16).values());
}

}  // namespace
}  // namespace g2
