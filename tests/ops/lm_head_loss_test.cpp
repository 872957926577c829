// Must catch: ignored rows that count or are not zeroed, chunks that lose or repeat rows, loss bits
// that depend on the chunk, gradients written where they should be added to (and the reverse, also
// without a valid row), a mean formed per chunk, bf16 sums of dW, targets out of range, non-finite
// logits hidden by tanh, ties in top1, evaluation that differs from training.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/lm_head_support.h"

namespace g2 {
namespace {

using test::Array;
using test::HeadOptions;
using test::HeadResult;
using test::ops;

struct Size {
  std::int64_t tokens, hidden, vocab;
};
constexpr std::size_t kOneTile = 0;  // the smallest workspace there is

std::vector<std::int32_t> some_targets(std::mt19937_64& rng, std::int64_t n, std::int64_t vocab) {
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < n; ++i) {
    targets.push_back(i % 3 == 1 ? kIgnoredTarget : static_cast<std::int32_t>(rng() % vocab));
  }
  return targets;
}

// The step's loss: what the gradients are of.
double objective(const std::vector<double>& x,
                 const std::vector<double>& w,
                 const std::vector<std::int32_t>& targets,
                 const HeadOptions& o) {
  const test::HeadLosses losses = test::expected_losses(x, w, targets, o);
  double sum = 0;
  for (std::size_t n = 0; n < targets.size(); ++n) sum += losses.loss[n] + losses.z_loss[n];
  return o.grad_scale * sum;
}

TEST(LmHeadLoss, LossAndGradientsEqualTheFormulasInF64) {
  std::mt19937_64 rng(1);
  for (const auto [n, d, v] : {Size{1, 1, 1}, {3, 2, 2}, {3, 5, 7}, {130, 3, 97}, {300, 2, 16}}) {
    for (const double softcap : {0.0, 4.0, 30.0, 50.0}) {
      for (const double z_weight : {0.0, 0.1}) {
        SCOPED_TRACE(testing::Message() << "N=" << n << " d=" << d << " V=" << v
                                        << " cap=" << softcap << " z=" << z_weight);
        const HeadOptions o{softcap, z_weight, 0.2, true, kOneTile};
        const Array x = test::random_array(rng, DType::kF64, {n, d}, 2);
        const Array w = test::random_array(rng, DType::kF64, {v, d});
        const auto targets = some_targets(rng, n, v);
        const HeadResult got = test::run_head(x, w, targets, o);
        const test::HeadLosses want = test::expected_losses(x.values(), w.values(), targets, o);
        const std::vector<double> loss = got.loss.values();
        double sum = 0, z_sum = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_NEAR(loss[i], want.loss[i], 1e-13 * (1 + std::abs(want.loss[i]))) << i;
          sum += loss[i];
          z_sum += want.z_loss[i];
        }
        EXPECT_EQ(got.sums.values()[0], sum);  // in this order
        EXPECT_NEAR(got.sums.values()[1], z_sum, 1e-12 * (1 + z_sum));
        const auto of_x = [&](const auto& value) {
          return objective(value, w.values(), targets, o);
        };
        const auto of_w = [&](const auto& value) {
          return objective(x.values(), value, targets, o);
        };
        if (v == 1 && z_weight == 0) {  // nothing to learn: exactly zero
          EXPECT_EQ(got.grad_w.values(), std::vector<double>(d, 0.0));
          continue;
        }
        EXPECT_LE(test::gradient_error(of_x, x.values(), got.grad_x.values()), 1e-8);
        EXPECT_LE(test::gradient_error(of_w, w.values(), got.grad_w.values()), 1e-8);
      }
    }
  }
}

// Bounds of lmhead tests for fp32 logits: one rounding of E and of r x, and of dx.
TEST(LmHeadLoss, F32AndBf16AreNearF64) {
  std::mt19937_64 rng(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const double std_dev : {0.2, 1.0, 4.0}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " std=" << std_dev);
      constexpr std::int64_t kTokens = 300, kHidden = 24, kVocab = 1009, kLabels = 500;
      const Array x = test::random_array(rng, dtype, {kTokens, kHidden}, std_dev);
      const Array w = test::random_array(rng, dtype, {kVocab, kHidden});
      const auto targets = some_targets(rng, kTokens, kLabels);
      const HeadOptions o{.z_weight = 1e-3, .grad_scale = 0.01};
      const HeadResult got = test::run_head(x, w, targets, o);
      const HeadResult want = test::run_head(
          test::converted(x, DType::kF64), test::converted(w, DType::kF64), targets, o);
      const std::vector<double> loss = got.loss.values(), want_loss = want.loss.values();
      for (std::int64_t n = 0; n < kTokens; ++n) ASSERT_NEAR(loss[n], want_loss[n], 2e-5) << n;
      const bool f32 = dtype == DType::kF32;
      EXPECT_LE(test::relative_l2(got.grad_x.values(), want.grad_x.values()), f32 ? 5e-6 : 3e-3);
      const std::vector<double> dw = got.grad_w.values(), want_dw = want.grad_w.values();
      EXPECT_LE(test::relative_l2(dw, want_dw), f32 ? 5e-6 : 3e-3);
      // Rows that are no label: the target's entry, the largest by far, would hide their error.
      const std::span<const double> rest(dw), want_rest(want_dw);
      EXPECT_LE(
          test::relative_l2(rest.subspan(kLabels * kHidden), want_rest.subspan(kLabels * kHidden)),
          f32 ? 1e-5 : 4e-3);
    }
  }
}

TEST(LmHeadLoss, ChunksChangeNoBitOfTheLoss) {
  std::mt19937_64 rng(3);
  for (const DType dtype : test::kFloatTypes) {
    const Array x = test::random_array(rng, dtype, {1500, 8});
    const Array w = test::random_array(rng, dtype, {13, 8});
    const auto targets = some_targets(rng, 1500, 13);
    const HeadResult whole = test::run_head(x, w, targets, {});
    const HeadResult chunks = test::run_head(x, w, targets, {.budget_bytes = kOneTile});
    EXPECT_TRUE(whole.loss.bytes() == chunks.loss.bytes());
    EXPECT_TRUE(whole.sums.bytes() == chunks.sums.bytes());
    EXPECT_LE(test::relative_l2(chunks.grad_w.values(), whole.grad_w.values()), 2e-6);
    EXPECT_LE(test::relative_l2(chunks.grad_x.values(), whole.grad_x.values()),
              1e-6 + (dtype == DType::kBF16 ? 1e-3 : 0));
    // More rows behind it change no bit of a row either.
    const std::vector<double> values = x.values();
    const Array head(dtype, {100, 8}, {values.begin(), values.begin() + 800});
    const HeadResult part = test::run_head(head, w, {targets.begin(), targets.begin() + 100}, {});
    const std::vector<double> some = part.loss.values(), all = whole.loss.values();
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  }
}

TEST(LmHeadLoss, EvaluationIsTrainingWithoutGradients) {
  std::mt19937_64 rng(4);
  for (const DType dtype : test::kFloatTypes) {
    const Array x = test::random_array(rng, dtype, {37, 5});
    const Array w = test::random_array(rng, dtype, {19, 5});
    const auto targets = some_targets(rng, 37, 19);
    const HeadResult training = test::run_head(x, w, targets, {});
    const HeadResult evaluation = test::run_head(x, w, targets, {.with_grad = false});
    EXPECT_TRUE(training.loss.bytes() == evaluation.loss.bytes());
    EXPECT_TRUE(training.top1.bytes() == evaluation.top1.bytes());
  }
}

struct Raw {  // a call whose accumulators hold something
  Array sums{DType::kF64, {2}, {100, 200}};
  Array flags = test::integers({kNonFiniteLoss});
  Array grad_x, grad_w;
};
Raw run_raw(const std::vector<std::int32_t>& targets, bool accumulate) {
  constexpr std::int64_t kHidden = 3, kVocab = 5;
  const auto n = static_cast<std::int64_t>(targets.size());
  std::mt19937_64 rng(5);
  const Array x = test::random_array(rng, DType::kF32, {n, kHidden});
  const Array w = test::random_array(rng, DType::kF32, {kVocab, kHidden});
  Raw raw;
  raw.grad_x = Array(DType::kF32, {n, kHidden});
  raw.grad_w = Array(DType::kF32, {kVocab, kHidden}, std::vector<double>(kVocab * kHidden, 7));
  const std::size_t bytes =
      ops().lm_head_workspace_bytes(DType::kF32, n, kHidden, kVocab, kOneTile, true);
  const Array workspace(DType::kI32, {static_cast<std::int64_t>(bytes / 4)});
  ops().lm_head_loss({.x = x,
                      .w = w,
                      .targets = test::integers(targets),
                      .softcap = 30,
                      .z_weight = 0,
                      .grad_scale = 1,
                      .sums = raw.sums,
                      .loss = {},
                      .top1 = {},
                      .grad_x = raw.grad_x,
                      .grad_w = raw.grad_w,
                      .accumulate_grad_w = accumulate,
                      .flags = raw.flags,
                      .workspace = workspace});
  return raw;
}

TEST(LmHeadLoss, AddsToSumsFlagsAndOnRequestToGradW) {
  const std::vector<std::int32_t> targets = {2, 0, 4};
  const Raw fresh = run_raw(targets, false), added = run_raw(targets, true);
  EXPECT_GT(fresh.sums.values()[0], 101);
  EXPECT_EQ(fresh.sums.values()[1], 200);
  EXPECT_EQ(fresh.flags.values()[0], kNonFiniteLoss);
  const std::vector<double> once = fresh.grad_w.values(), sum = added.grad_w.values();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(sum[i], once[i] + 7, 2e-6);
}

TEST(LmHeadLoss, WithoutAValidRowGradientsAreZeroAndSumsStay) {
  const std::vector<std::int32_t> targets(4, kIgnoredTarget);
  const Raw fresh = run_raw(targets, false), added = run_raw(targets, true);
  EXPECT_EQ(fresh.grad_w.values(), std::vector<double>(15, 0.0));
  EXPECT_EQ(added.grad_w.values(), std::vector<double>(15, 7.0));
  EXPECT_EQ(fresh.grad_x.values(), std::vector<double>(12, 0.0));
  EXPECT_EQ(fresh.sums.values(), (std::vector<double>{100, 200}));
  EXPECT_EQ(run_raw({}, false).grad_w.values(), std::vector<double>(15, 0.0));
}

TEST(LmHeadLoss, IgnoredRowsAreExactlyZeroWhateverTheyHold) {
  std::vector<double> values(12, 1.0);
  for (int i = 3; i < 6; ++i) values[i] = NAN;
  std::mt19937_64 rng(6);
  const Array w = test::random_array(rng, DType::kF32, {5, 3});
  const HeadResult got =
      test::run_head(Array(DType::kF32, {4, 3}, values), w, {1, kIgnoredTarget, 2, 3}, {});
  EXPECT_EQ(got.flag_bits(), 0);
  EXPECT_EQ(got.loss.values()[1], 0);
  EXPECT_EQ(got.top1.values()[1], 0);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(got.grad_x.values()[i], 0);
  for (const double g : got.grad_w.values()) EXPECT_TRUE(std::isfinite(g));
}

TEST(LmHeadLoss, NonFiniteLogitsAreFlagged) {
  std::mt19937_64 rng(7);
  for (const DType dtype : test::kFloatTypes) {
    for (const double softcap : {0.0, 30.0, 50.0}) {
      for (const double bad : {static_cast<double>(INFINITY),
                               static_cast<double>(-INFINITY),
                               static_cast<double>(NAN)}) {
        for (const bool with_grad : {false, true}) {
          std::vector<double> values(20 * 4, 0.5);
          values[13 * 4 + 2] = bad;
          const HeadResult got = test::run_head(Array(dtype, {20, 4}, values),
                                                test::random_array(rng, dtype, {33, 4}),
                                                std::vector<std::int32_t>(20, 3),
                                                {.softcap = softcap, .with_grad = with_grad});
          EXPECT_TRUE(got.flag_bits() & kNonFiniteLogit) << softcap << " " << bad;
        }
      }
    }
  }
}

TEST(LmHeadLoss, TargetsOutOfRangeAreNamed) {
  std::mt19937_64 rng(8);
  const Array x = test::random_array(rng, DType::kF32, {3, 2});
  const Array w = test::random_array(rng, DType::kF32, {5, 2});
  for (const std::int32_t bad : {5, -1, -99, -101, 2147483647}) {
    try {
      test::run_head(x, w, {0, bad, 1}, {});
      ADD_FAILURE() << bad;
    } catch (const base::DataError& e) {
      EXPECT_EQ(std::string(e.what()),
                "lm_head_loss: target " + std::to_string(bad) +
                    " of row 1 is not in [0, 5) and not -100");
    }
  }
}

TEST(LmHeadLoss, Top1BreaksTiesByTheLowestId) {
  const Array w(DType::kF32, {5, 1}, {1, 3, 2, 3, -1});
  const Array x(DType::kF32, {4, 1}, {1, 1, 1, -1});
  const HeadResult got = test::run_head(x, w, {1, 3, 2, 4}, {});
  EXPECT_EQ(got.top1.values(), (std::vector<double>{1, 0, 0, 1}));
}

TEST(LmHeadLoss, WorkspaceFollowsTheBudget) {
  const auto bytes = [](std::int64_t tokens, std::int64_t vocab, std::size_t budget) {
    return ops().lm_head_workspace_bytes(DType::kF32, tokens, 64, vocab, budget, true);
  };
  const std::size_t least = bytes(1, 32000, 0);
  EXPECT_GT(least, 0U);
  EXPECT_EQ(bytes(100000, 32000, 0), least);
  constexpr std::size_t kBudget = std::size_t{256} << 20;
  EXPECT_LE(bytes(100000, 32000, kBudget), kBudget);
  EXPECT_GT(bytes(100000, 32000, kBudget), kBudget / 2);
  EXPECT_LT(bytes(100, 260, kBudget), std::size_t{1} << 20);  // no more than the tokens need
  std::mt19937_64 rng(9);
  const Array x = test::random_array(rng, DType::kF32, {3, 2}), small(DType::kI32, {8});
  const Array w = test::random_array(rng, DType::kF32, {5, 2}), flags = test::integers({0});
  const Array sums(DType::kF64, {2}, {0, 0}), targets = test::integers({0, 1, 2});
  EXPECT_THROW(ops().lm_head_loss({.x = x,
                                   .w = w,
                                   .targets = targets,
                                   .softcap = 0,
                                   .z_weight = 0,
                                   .grad_scale = 1,
                                   .sums = sums,
                                   .loss = {},
                                   .top1 = {},
                                   .grad_x = {},
                                   .grad_w = {},
                                   .accumulate_grad_w = false,
                                   .flags = flags,
                                   .workspace = small}),
               base::DeviceError);
}

TEST(LmHeadLogits, AreCapped) {
  std::mt19937_64 rng(10);
  for (const DType dtype : test::kFloatTypes) {
    for (const double softcap : {0.0, 4.0}) {
      const Array x = test::random_array(rng, dtype, {3, 6}, 2);
      const Array w = test::random_array(rng, dtype, {131, 6}, 2);
      const Array logits(work_dtype(dtype), {3, 131});
      ops().lm_head_logits({x, w, softcap, logits});
      const std::vector<double> xs = x.values(), ws = w.values(), got = logits.values();
      for (std::size_t i = 0; i < got.size(); ++i) {
        double z = 0;
        for (std::size_t c = 0; c < 6; ++c) z += xs[i / 131 * 6 + c] * ws[i % 131 * 6 + c];
        const double want = softcap == 0 ? z : softcap * std::tanh(z / softcap);
        ASSERT_NEAR(got[i], want, 200 * test::unit_roundoff(logits->dtype)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace g2
