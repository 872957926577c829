// Single rows with known results. Must catch: no cap, cap without its derivative, loss as a
// difference of large numbers, p - 1 rounded, exp that overflows, the z-term added although off.
#include <gtest/gtest.h>

#include "tests/ops/lm_head_support.h"

namespace g2 {
namespace {

using test::Array;

struct Row {
  const char* name;
  std::vector<double> z;
  std::int32_t target;
  double softcap, z_weight;
  double loss;             // with z-loss
  std::vector<double> dz;  // of the first logits
  bool exact_in_bf16 = true;
};

std::vector<double> ramp() {
  std::vector<double> z;
  for (int j = 0; j < 97; ++j) z.push_back((j - 48) / 2.0);
  return z;
}

std::vector<double> one_and_zeros(double first, std::size_t zeros) {
  std::vector<double> z(zeros + 1);
  z[0] = first;
  return z;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"uniform", {0, 0, 0, 0}, 2, 30, 0, 1.38629436, {.25, .25, -.75, .25}},
      {"uniform, z",
       {0, 0, 0, 0},
       2,
       30,
       .1,
       1.57847557,
       {.3193147, .3193147, -.6806853, .3193147}},
      {"small cap", {3, -1, 2, .5}, 1, 4, 0, 4.02691761, {.3594503, -.9232551, .2371640, .0768872}},
      {"small cap, z",
       {3, -1, 2, .5},
       1,
       4,
       .1,
       4.95548658,
       {.5785168, -.9130409, .3817033, .1237460}},
      {"no cap", {3, -1, 2, .5}, 1, 0, 0, 4.38409170, {.6810690, -.9875258, .2505513, .0559056}},
      {"wide", {30, -30, 0, 15}, 3, 30, 0, 8.98443531, {.4199217, 6.0e-21, 1.2e-10, -.7863492}},
      {"large, no cap",
       {1000, 999, 998, -1000},
       1,
       0,
       0,
       1.40760596,
       {.6652410, -.7552715, .0900306, 0},
       false},
      {"certain", one_and_zeros(40, 1000), 0, 30, 0, 4.61435e-9, {-1.12125e-9, 4.61435e-12}},
      {"hopelessly certain", {1e4, -1e4, -1e4, -1e4}, 0, 30, 0, 2.627e-26, {0, 0, 0, 0}},
      {"hopelessly wrong", {-1e4, 1e4, 1e4, 1e4}, 0, 30, 0, 61.0986123, {0, 0, 0, 0}},
      {"ramp, top", ramp(), 96, 30, 0, 1.35166331, {}},
      {"ramp, middle", ramp(), 48, 30, 0, 21.2727664, {}},
      {"ramp, bottom", ramp(), 0, 30, 0, 41.1938695, {}},
      {"cap above the fixed offset",
       {60, -60, 10, 0},
       3,
       50,
       0,
       41.6827304,
       {.3050200, 1.9e-37, 1.5e-14, -1}},
  };
  return all;
}

// W is the identity, so that x holds the logits and its gradient theirs.
test::HeadResult run_row(DType dtype, const Row& row) {
  const auto v = static_cast<std::int64_t>(row.z.size());
  std::vector<double> identity(v * v);
  for (std::int64_t j = 0; j < v; ++j) identity[j * v + j] = 1;
  return test::run_head(Array(dtype, {1, v}, row.z),
                        Array(dtype, {v, v}, identity),
                        {row.target},
                        {.softcap = row.softcap, .z_weight = row.z_weight});
}

TEST(LmHeadRow, LossIsTheKnownOne) {
  for (const DType dtype : test::kFloatTypes) {
    for (const Row& row : rows()) {
      if (dtype == DType::kBF16 && !row.exact_in_bf16) continue;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << row.name);
      const std::vector<double> sums = run_row(dtype, row).sums.values();
      // The table's digits; f32 adds a few roundings of numbers up to the cap.
      double digits = row.loss > 1e-3 ? 1e-8 : 1e-5;
      if (row.loss < 1e-20) digits = 1e-3;
      EXPECT_NEAR(
          sums[0] + sums[1], row.loss, row.loss * (digits + (dtype == DType::kF64 ? 0 : 5e-6)));
      EXPECT_EQ(sums[1] != 0, row.z_weight != 0);
    }
  }
}

TEST(LmHeadRow, GradientIsTheKnownOne) {
  for (const DType dtype : test::kFloatTypes) {
    for (const Row& row : rows()) {
      if (dtype == DType::kBF16 && !row.exact_in_bf16) continue;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << row.name);
      const std::vector<double> got = run_row(dtype, row).grad_x.values();
      for (std::size_t j = 0; j < row.dz.size(); ++j) {
        const double want = std::abs(row.dz[j]);
        const double table = want > 1e-3 ? 6e-8 : (row.z.size() > 100 ? 1e-5 : 0.05) * want + 1e-38;
        // bf16 rounds E and then dx.
        const double rounding = dtype == DType::kF64 ? 0 : 2 * test::unit_roundoff(dtype) + 1e-5;
        EXPECT_NEAR(got[j], row.dz[j], table + rounding * want) << j;
      }
    }
  }
}

TEST(LmHeadRow, SaturatedTargetsAreFlagged) {
  for (const DType dtype : test::kFloatTypes) {
    for (const Row& row : rows()) {
      const bool saturated = row.softcap != 0 && std::abs(row.z[row.target]) > 1000;
      EXPECT_EQ(run_row(dtype, row).flag_bits(), saturated ? kSaturatedTarget : 0) << row.name;
    }
  }
}

TEST(LmHeadRow, TheRampsGradientReachesXAndW) {
  const std::vector<double> z = ramp();
  const test::HeadResult got =
      test::run_head(Array(DType::kF64, {1, 1}, {1}), Array(DType::kF64, {97, 1}, z), {96}, {});
  EXPECT_NEAR(got.grad_x.values()[0], -.0423433, 6e-8);
  EXPECT_NEAR(got.grad_w.values()[96], -.4143664, 6e-8);
}

// Checked by finite differences in 40-digit arithmetic: whole op, cap 4, one row ignored, count 5.
TEST(LmHeadLoss, ClosedSmallCase) {
  const Array x(DType::kF64, {3, 2}, {3, 4, -1, 2, 2, -2});
  const Array w(DType::kF64, {4, 2}, {1, 0, 0, 1, -1, 1, 2, -1});
  const test::HeadResult got =
      test::run_head(x, w, {1, kIgnoredTarget, 3}, {.softcap = 4, .grad_scale = 0.2});
  const auto expect = [](const Array& array, const std::vector<double>& want) {
    const std::vector<double> values = array.values();
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(values[i], want[i], 6e-10 + 6e-10 * std::abs(want[i])) << i;
    }
  };
  expect(got.loss, {0.708755799, 0, 0.161658670});
  expect(got.sums, {0.870414469, 0});
  expect(got.grad_x, {0.0704411474, -0.0543006765, 0, 0, 0.0118636570, 0.0060497106});
  expect(got.grad_w,
         {0.151745195,
          0.0961878442,
          -0.126815522,
          -0.171719545,
          0.0353313884,
          0.0466842659,
          0.0593184746,
          0.104266849});
}

}  // namespace
}  // namespace g2
