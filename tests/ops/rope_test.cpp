// Must catch: interleaved instead of half-rotated pairs, the wrong sign, values or later heads
// rotated too, row index for position, inverse that is not the transpose, bf16 rounded twice.
#include <gtest/gtest.h>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

Array angle_table(DType dtype, std::int64_t positions, std::int64_t head_dim) {
  std::vector<double> rows;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const bool sine : {false, true}) {
      for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle = static_cast<double>(p) / std::pow(100.0, 2.0 * i / head_dim);
        rows.push_back(sine ? std::sin(angle) : std::cos(angle));
      }
    }
  }
  return {dtype, {positions, head_dim}, rows};
}

struct Size {
  std::int64_t tokens, heads, untouched_heads, head_dim;
};
constexpr Size kSizes[] = {
    {0, 1, 0, 2}, {1, 1, 0, 2}, {3, 2, 1, 6}, {130, 3, 2, 10}, {17, 6, 2, 64}};
constexpr std::int64_t kPositions = 11;

TEST(Rope, RotatesHalvesOfTheFirstHeadsByThePositionsAngle) {
  std::mt19937_64 rng(1);
  for (const DType dtype : test::kFloatTypes) {
    for (const auto [n, heads, rest, h] : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " N=" << n << " h=" << h);
      const Array table = angle_table(work_dtype(dtype), kPositions, h);
      std::vector<std::int32_t> positions;
      for (std::int64_t i = 0; i < n; ++i) {
        positions.push_back(static_cast<std::int32_t>((i * 7 + 3) % kPositions));
      }
      const std::int64_t width = (heads + rest) * h;
      const Array x = test::random_array(rng, dtype, {n, width});
      const std::vector<double> before = x.values();
      const std::vector<double> angles = table.values();
      ops().rope({x, test::integers(positions), table, heads, false});
      const std::vector<double> after = x.values();
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t head = c / h, i = c % h, pair = i % (h / 2);
          const double cosine = angles[positions[row] * h + pair];
          const double sine = angles[positions[row] * h + h / 2 + pair];
          const double own = before[row * width + c];
          const double other = before[row * width + head * h + (i < h / 2 ? i + h / 2 : i - h / 2)];
          const double want =
              head >= heads ? own : own * cosine + (i < h / 2 ? -other : other) * sine;
          const double scale = std::abs(own) + std::abs(other);
          const double bound = test::unit_roundoff(dtype) * std::abs(want) +
                               3 * test::unit_roundoff(work_dtype(dtype)) * scale;
          ASSERT_NEAR(after[row * width + c], want, bound) << row << ", " << c;
        }
      }
    }
  }
}

TEST(Rope, InverseIsTheTranspose) {
  std::mt19937_64 rng(2);
  const Array table = angle_table(DType::kF64, kPositions, 8);
  const Array positions = test::integers({0, 10, 5, 5});
  const Array x = test::random_array(rng, DType::kF64, {4, 24});
  const Array y = test::random_array(rng, DType::kF64, {4, 24});
  const std::vector<double> x0 = x.values(), y0 = y.values();
  ops().rope({x, positions, table, 2, false});
  ops().rope({y, positions, table, 2, true});
  EXPECT_NEAR(
      test::dot(x.values(), y0), test::dot(x0, y.values()), 1e-12);  // <R x, y> = <x, R^T y>
  ops().rope({x, positions, table, 2, true});
  EXPECT_LE(test::relative_l2(x.values(), x0), 1e-15);
}

}  // namespace
}  // namespace g2
