// Must catch: w used transposed, in and out exchanged, a gradient written instead of added to,
// bf16 accumulated in bf16, dropped rows at tile edges.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

struct Size {
  std::int64_t n, in, out;
};
constexpr Size kSizes[] = {{0, 3, 2}, {1, 1, 1}, {5, 40, 56}, {129, 7, 257}, {300, 128, 3}};

// sum_l a(i, l) b(l, j), [rows, columns].
template <typename FunctionA, typename FunctionB>
std::vector<double> product(std::int64_t rows,
                            std::int64_t columns,
                            std::int64_t inner,
                            const FunctionA& a,
                            const FunctionB& b) {
  std::vector<double> c;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < inner; ++l) sum += a(i, l) * b(l, j);
      c.push_back(sum);
    }
  }
  return c;
}

// Relative to the Frobenius norm: one rounding of the result, f32 sums of `inner` products.
double bound(DType result, DType work, std::int64_t inner) {
  return test::unit_roundoff(result) +
         test::unit_roundoff(work) * std::sqrt(static_cast<double>(inner)) * 4;
}

TEST(Linear, AllThreeProductsInEveryType) {
  std::mt19937_64 rng(1);
  for (const DType dtype : test::kFloatTypes) {
    const DType work = work_dtype(dtype);
    for (const auto [n, in, out] : kSizes) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(dtype) << " N=" << n << " in=" << in << " out=" << out);
      const Array x = test::random_array(rng, dtype, {n, in});
      const Array w = test::random_array(rng, dtype, {out, in});
      const Array grad_y = test::random_array(rng, dtype, {n, out});
      const Array y(dtype, {n, out}), grad_x(dtype, {n, in}), grad_w(work, {out, in});
      ops().linear_forward({x, w, y});
      ops().linear_dgrad({grad_y, w, grad_x});
      ops().linear_wgrad({grad_y, x, grad_w, false});
      const auto xs = x.values(), ws = w.values(), gs = grad_y.values();
      const auto x_at = [&](auto i, auto l) { return xs[i * in + l]; };
      const auto w_at = [&](auto i, auto l) { return ws[i * in + l]; };
      const auto g_at = [&](auto i, auto l) { return gs[i * out + l]; };
      const auto transposed = [](const auto& f) {
        return [&f](auto i, auto j) { return f(j, i); };
      };
      EXPECT_LE(test::relative_l2(y.values(), product(n, out, in, x_at, transposed(w_at))),
                bound(dtype, work, in));
      EXPECT_LE(test::relative_l2(grad_x.values(), product(n, in, out, g_at, w_at)),
                bound(dtype, work, out));
      const std::vector<double> want_w = product(out, in, n, transposed(g_at), x_at);
      EXPECT_LE(test::relative_l2(grad_w.values(), want_w), bound(work, work, n));

      ops().linear_wgrad({grad_y, x, grad_w, true});
      std::vector<double> twice = want_w;
      for (double& value : twice) value *= 2;
      EXPECT_LE(test::relative_l2(grad_w.values(), twice), bound(work, work, n));
    }
  }
}

TEST(Linear, NamesTheOpAndTheShapesItCannotMultiply) {
  const Array x(DType::kF32, {2, 3}, std::vector<double>(6, 0)), y(DType::kF32, {2, 5});
  const Array w(DType::kF32, {5, 4}, std::vector<double>(20, 0));
  const Array narrow(DType::kBF16, {5, 3}, std::vector<double>(15, 0));
  const auto message = [&](const Array& weights) -> std::string {
    try {
      ops().linear_forward({x, weights, y});
    } catch (const base::DeviceError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(w),
            "linear_forward: need x [N, in], w [out, in], y [N, out]; got [2, 3] f32 [5, 4] f32 "
            "[2, 5] f32");
  EXPECT_EQ(message(narrow), "linear_forward: expected f32; got [5, 3] bf16 [2, 5] f32");
}

}  // namespace
}  // namespace g2
