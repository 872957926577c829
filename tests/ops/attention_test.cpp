// Must catch: a mask off by one (window, documents, causality), masked scores that get probability,
// the cap applied before the scale or not at all, its derivative missing, kv heads assigned modulo
// instead of in groups, gradients of a group not summed, lse in the wrong base or without the
// maximum, overflow of exp, rows at tile edges, gradients of one document leaking into another.
#include <gtest/gtest.h>

#include <ostream>

#include "base/error.h"
#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

struct Case {
  std::int64_t tokens;
  std::int64_t q_heads, kv_heads, head_dim;
  double softcap;
  std::int64_t window;                    // 0: none
  std::vector<std::int64_t> starts = {};  // of documents after the first
  double std_dev = 1;                     // of q, k and v

  AttentionShape shape() const {
    return {.q_heads = q_heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .scale = 1 / std::sqrt(static_cast<double>(head_dim) + 2),
            .softcap = softcap};
  }
  std::int64_t row_width() const { return (q_heads + 2 * kv_heads) * head_dim; }
  std::vector<std::int32_t> lo() const {
    std::vector<std::int32_t> out;
    std::int64_t start = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (std::find(starts.begin(), starts.end(), i) != starts.end()) start = i;
      out.push_back(
          static_cast<std::int32_t>(window == 0 ? start : std::max(start, i - window + 1)));
    }
    return out;
  }
  std::vector<std::int32_t> hi() const {
    const std::vector<std::int32_t> from = lo();
    std::vector<std::int32_t> out(from.size());
    for (std::int32_t i = 0; i < tokens; ++i) {
      for (std::int32_t j = from[i]; j <= i; ++j) out[j] = i;
    }
    return out;
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "N=" << c.tokens << " H=" << c.q_heads << " K=" << c.kv_heads << " h=" << c.head_dim
             << " cap=" << c.softcap << " window=" << c.window
             << " documents=" << c.starts.size() + 1 << " std=" << c.std_dev;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {0, 2, 1, 4, 50, 0},
      {1, 1, 1, 1, 0, 0},
      {1, 4, 2, 3, 3, 1},
      {13, 4, 2, 8, 3, 5, {4, 5, 11}},
      {63, 1, 1, 5, 3, 0},
      {64, 2, 2, 4, 0, 17},
      {65, 2, 1, 3, 3, 64},
      {67, 4, 1, 2, 3, 5, {1, 2, 66}},
      {130, 4, 2, 7, 0, 0, {60, 64, 65}},
      {150, 2, 1, 6, 100, 33, {}, 3},  // a cap that needs the row's maximum
      {200, 8, 2, 4, 50, 100, {128}, 4},
  };
  return all;
}

struct Forward {
  Array o, lse;
};
Forward forward(const Case& c, const Array& qkv) {
  const DType dtype = qkv->dtype;
  Forward out{Array(dtype, {c.tokens, c.q_heads * c.head_dim}),
              Array(work_dtype(dtype), {c.q_heads, c.tokens})};
  ops().attention_forward({c.shape(), qkv, test::integers(c.lo()), out.o, out.lse});
  return out;
}

Array backward(const Case& c, const Array& qkv, const Forward& f, const Array& grad_o) {
  const DType dtype = qkv->dtype;
  Array grad(dtype, {c.tokens, c.row_width()});
  const Array delta(work_dtype(dtype), {c.q_heads, c.tokens});
  ops().attention_backward({.shape = c.shape(),
                            .qkv = qkv,
                            .o = f.o,
                            .lse = f.lse,
                            .grad_o = grad_o,
                            .lo = test::integers(c.lo()),
                            .hi = test::integers(c.hi()),
                            .grad_qkv = grad,
                            .delta = delta});
  return grad;
}

// Straight from the formulas, one query at a time.
struct Expected {
  std::vector<double> o, lse;
};
Expected expected(const Case& c, const std::vector<double>& qkv) {
  const std::int64_t h = c.head_dim, width = c.row_width();
  const AttentionShape shape = c.shape();
  const std::vector<std::int32_t> lo = c.lo();
  Expected out{std::vector<double>(c.tokens * c.q_heads * h), {}};
  for (std::int64_t head = 0; head < c.q_heads; ++head) {
    const std::int64_t kv = head / (c.q_heads / c.kv_heads);
    for (std::int64_t i = 0; i < c.tokens; ++i) {
      const double* q = qkv.data() + i * width + head * h;
      std::vector<double> p;
      double sum = 0;
      for (std::int64_t j = lo[i]; j <= i; ++j) {
        const double* k = qkv.data() + j * width + (c.q_heads + kv) * h;
        double s = 0;
        for (std::int64_t n = 0; n < h; ++n) s += q[n] * k[n];
        s *= shape.scale;
        if (c.softcap != 0) s = c.softcap * std::tanh(s / c.softcap);
        p.push_back(std::exp(s));
        sum += p.back();
      }
      out.lse.push_back(std::log2(sum));
      for (std::int64_t j = lo[i]; j <= i; ++j) {
        const double* v = qkv.data() + j * width + (c.q_heads + c.kv_heads + kv) * h;
        for (std::int64_t n = 0; n < h; ++n) {
          out.o[(i * c.q_heads + head) * h + n] += p[j - lo[i]] / sum * v[n];
        }
      }
    }
  }
  return out;
}

TEST(AttentionForward, EqualsTheFormulasInF64) {
  std::mt19937_64 rng(1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << c);
    const Array qkv = test::random_array(rng, DType::kF64, {c.tokens, c.row_width()}, c.std_dev);
    const Forward got = forward(c, qkv);
    const Expected want = expected(c, qkv.values());
    EXPECT_LE(test::relative_l2(got.o.values(), want.o), 1e-13);
    EXPECT_LE(test::relative_l2(got.lse.values(), want.lse), 1e-13);
  }
}

// A score of size s carries an error of a few units of s in f32, and so does its exp; then one
// rounding of the output.
double bound(const Case& c, DType dtype) {
  const double largest = c.softcap != 0 ? c.softcap : 8 * c.std_dev * c.std_dev;
  return test::unit_roundoff(dtype) + 8 * (1 + largest) * test::unit_roundoff(DType::kF32);
}

TEST(AttentionForward, F32AndBf16AreNearF64) {
  std::mt19937_64 rng(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << c);
      const Array qkv = test::random_array(rng, dtype, {c.tokens, c.row_width()}, c.std_dev);
      const Forward got = forward(c, qkv);
      const Expected want = expected(c, qkv.values());
      EXPECT_LE(test::relative_l2(got.o.values(), want.o), bound(c, dtype));
      EXPECT_LE(test::relative_l2(got.lse.values(), want.lse), bound(c, DType::kF32));
    }
  }
}

// With q = 0 every visible key weighs the same: lse counts them, o is their mean.
TEST(AttentionForward, ZeroQueriesCountTheVisibleKeys) {
  for (const DType dtype : test::kFloatTypes) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << c);
      std::vector<double> qkv(c.tokens * c.row_width());
      for (std::int64_t i = 0; i < c.tokens; ++i) {
        for (std::int64_t n = c.q_heads * c.head_dim; n < c.row_width(); ++n) {
          qkv[i * c.row_width() + n] = static_cast<double>(i % 32);  // exact in bf16
        }
      }
      const Forward got = forward(c, Array(dtype, {c.tokens, c.row_width()}, qkv));
      const std::vector<double> lse = got.lse.values(), o = got.o.values();
      const std::vector<std::int32_t> lo = c.lo();
      for (std::int64_t i = 0; i < c.tokens; ++i) {
        const auto count = static_cast<double>(i - lo[i] + 1);
        double sum = 0;
        for (std::int64_t j = lo[i]; j <= i; ++j) sum += static_cast<double>(j % 32);
        for (std::int64_t head = 0; head < c.q_heads; ++head) {
          ASSERT_NEAR(lse[head * c.tokens + i], std::log2(count), 1e-6) << i;
          const std::int64_t first = (i * c.q_heads + head) * c.head_dim;
          ASSERT_NEAR(o[first], sum / count, 32 * (test::unit_roundoff(dtype) + 1e-6)) << i;
        }
      }
    }
  }
}

// Scores far beyond the range of exp, of one sign: the maximum, or the cap, must keep them finite.
TEST(AttentionForward, HugeScoresStayFinite) {
  for (const DType dtype : test::kFloatTypes) {
    for (const double softcap : {0.0, 50.0, 100.0}) {
      for (const double q : {400.0, -400.0}) {
        const Case c{5, 1, 1, 1, softcap, 0};
        std::vector<double> qkv;
        for (int i = 0; i < 5; ++i) qkv.insert(qkv.end(), {q, 300.0, i + 1.0});
        const Forward got = forward(c, Array(dtype, {5, 3}, qkv));
        const Expected want = expected({5, 1, 1, 1, 50, 0}, qkv);  // equal scores in every case
        EXPECT_LE(test::relative_l2(got.o.values(), want.o), test::unit_roundoff(dtype) + 1e-5);
        for (const double lse : got.lse.values()) EXPECT_TRUE(std::isfinite(lse));
      }
    }
  }
}

TEST(AttentionForward, ARowsBitsDoNotDependOnOtherRows) {
  std::mt19937_64 rng(3);
  const Case two{140, 4, 2, 8, 50, 40, {70}}, one{70, 4, 2, 8, 50, 40};
  const Array qkv = test::random_array(rng, DType::kF32, {140, two.row_width()});
  const std::vector<double> values = qkv.values();
  const Array second(
      DType::kF32, {70, one.row_width()}, {values.begin() + 70 * two.row_width(), values.end()});
  const std::vector<double> both = forward(two, qkv).o.values();
  const std::vector<double> alone = forward(one, second).o.values();
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.end() - alone.size()));
}

TEST(AttentionBackward, IsTheGradientOfForward) {
  std::mt19937_64 rng(4);
  for (const Case& c : cases()) {
    if (c.tokens == 0) continue;
    SCOPED_TRACE(testing::Message() << c);
    const Array qkv =
        test::random_array(rng, DType::kF64, {c.tokens, c.row_width()}, std::min(c.std_dev, 2.0));
    const Array grad_o = test::random_array(rng, DType::kF64, {c.tokens, c.q_heads * c.head_dim});
    const Array grad = backward(c, qkv, forward(c, qkv), grad_o);
    const std::vector<double> weights = grad_o.values();
    EXPECT_LE(
        test::gradient_error([&](const auto& v) { return test::dot(weights, expected(c, v).o); },
                             qkv.values(),
                             grad.values()),
        1e-9);
  }
}

TEST(AttentionBackward, F32AndBf16AreNearF64) {
  std::mt19937_64 rng(5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << c);
      const Array qkv = test::random_array(rng, dtype, {c.tokens, c.row_width()}, c.std_dev);
      const Array grad_o = test::random_array(rng, dtype, {c.tokens, c.q_heads * c.head_dim});
      const Forward f = forward(c, qkv);
      const auto wide = [](const Array& a) { return test::converted(a, DType::kF64); };
      // The same o and lse, whose own rounding is not this op's error.
      const Array want = backward(c, wide(qkv), {wide(f.o), wide(f.lse)}, wide(grad_o));
      EXPECT_LE(test::relative_l2(backward(c, qkv, f, grad_o).values(), want.values()),
                2 * bound(c, dtype));
    }
  }
}

// The incoming gradient lies in the second document only.
TEST(AttentionBackward, GradientsStayInTheirDocument) {
  std::mt19937_64 rng(6);
  const Case c{90, 2, 1, 4, 3, 0, {30, 75}};
  const Array qkv = test::random_array(rng, DType::kF32, {90, c.row_width()});
  std::vector<double> weights(90 * 8);
  for (std::size_t i = 30 * 8; i < 75 * 8; ++i) weights[i] = 1 + static_cast<double>(i % 7);
  const std::vector<double> grad =
      backward(c, qkv, forward(c, qkv), Array(DType::kF32, {90, 8}, weights)).values();
  for (std::int64_t i = 0; i < 90; ++i) {
    double size = 0;
    for (std::int64_t n = 0; n < c.row_width(); ++n) size += std::abs(grad[i * c.row_width() + n]);
    EXPECT_EQ(size > 0, i >= 30 && i < 75) << i;
  }
}

TEST(Attention, RefusesHeadsThatDoNotGroup) {
  const Case c{2, 3, 2, 4, 50, 0};
  std::mt19937_64 rng(7);
  const Array qkv = test::random_array(rng, DType::kF32, {2, c.row_width()});
  EXPECT_THROW(forward(c, qkv), base::DeviceError);
}

TEST(Attention, RefusesIntervalsThatAreNone) {
  std::mt19937_64 rng(8);
  const Array qkv = test::random_array(rng, DType::kF32, {3, 6});
  const Array o(DType::kF32, {3, 2}), lse(DType::kF32, {1, 3});
  for (const std::vector<std::int32_t>& lo :
       {std::vector<std::int32_t>{0, 2, 2}, {0, 1, 0}, {-1, 0, 0}, {1, 1, 1}}) {
    const Array intervals = test::integers(lo);
    EXPECT_THROW(ops().attention_forward({{1, 1, 2, 1, 0}, qkv, intervals, o, lse}),
                 base::DeviceError);
  }
}

}  // namespace
}  // namespace g2
