// Must catch: the scale lost, applied twice or unrounded, the table's gradient overwritten, rows of
// one id added to another, a padding row that gets a gradient, bf16 rows added in bf16.
#include <gtest/gtest.h>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

TEST(EmbeddingForward, IsTheScaledRowRoundedOnce) {
  std::mt19937_64 rng(1);
  for (const DType dtype : test::kFloatTypes) {
    for (const std::int64_t d : {1, 40, 257}) {
      const Array table = test::random_array(rng, dtype, {7, d});
      const Array y(dtype, {5, d});
      const std::vector<std::int32_t> ids = {6, 0, 3, 3, 1};
      ops().embedding_forward({test::integers(ids), table, 59.75, y});
      const std::vector<double> rows = table.values(), got = y.values();
      for (std::int64_t i = 0; i < 5 * d; ++i) {
        const double want = 59.75 * rows[ids[i / d] * d + i % d];
        ASSERT_NEAR(got[i], want, 2 * test::unit_roundoff(dtype) * std::abs(want));
      }
    }
  }
}

TEST(EmbeddingForward, NoTokens) {
  const Array table(DType::kF32, {2, 2}, {1, 2, 3, 4}), y(DType::kF32, {0, 2});
  ops().embedding_forward({test::integers({}), table, 2, y});
}

// Integers, so the sums are exact: rows {0, 3, 4} have id 2, row 1 has id 5, row 2 is padding.
TEST(EmbeddingBackward, AddsTheScaledSumOfEachGroup) {
  for (const DType dtype : test::kFloatTypes) {
    constexpr std::int64_t kVocab = 6;
    for (const std::int64_t d : {1, 64, 65, 130}) {
      std::vector<double> grads, table(kVocab * d, 1.0);
      for (std::int64_t n = 0; n < 5; ++n) {
        for (std::int64_t i = 0; i < d; ++i) grads.push_back(static_cast<double>(n * 10 + i % 9));
      }
      const Array grad_y(dtype, {5, d}, grads);
      const Array grad_table(work_dtype(dtype), {kVocab, d}, table);
      const Array ids = test::integers({2, 5}), begin = test::integers({0, 3, 4}),
                  rows = test::integers({0, 3, 4, 1});
      ops().embedding_backward({{2, ids, begin, rows}, grad_y, 3, grad_table});
      for (std::int64_t i = 0; i < d; ++i) {
        table[2 * d + i] += 3 * (grads[i] + grads[3 * d + i] + grads[4 * d + i]);
        table[5 * d + i] += 3 * grads[d + i];
      }
      EXPECT_EQ(grad_table.values(), table) << dtype_name(dtype) << " d=" << d;
    }
  }
}

// 300 rows of 1 + 2^-7: bf16 would stop growing at 256.
TEST(EmbeddingBackward, AccumulatesInTheWorkType) {
  constexpr std::int64_t kRows = 300;
  const Array grad_y(DType::kBF16, {kRows, 1}, std::vector<double>(kRows, 1.0078125));
  const Array grad_table(DType::kF32, {1, 1}, {0});
  std::vector<std::int32_t> rows(kRows);
  for (std::int32_t n = 0; n < kRows; ++n) rows[n] = n;
  ops().embedding_backward(
      {{1, test::integers({0}), test::integers({0, kRows}), test::integers(rows)},
       grad_y,
       1,
       grad_table});
  EXPECT_EQ(grad_table.values()[0], kRows * 1.0078125);
}

}  // namespace
}  // namespace g2
