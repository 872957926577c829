// The GPU attention of kernels/attention.h against CpuOps in f64 on the same rounded inputs.
// Must catch: a mask off by one at either end of the interval, masking before the cap, a forgotten
// 1 - t^2, rows past N read or written, the last lines of lse and delta when N is no multiple of 4,
// dK/dV of only one head of a group, a wrong column of the fused row, unwritten outputs, NaN from
// masked or saturated scores, and results that change from run to run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ops/cuda_attention_support.h"

namespace g2::test {
namespace {

struct PathCase {
  AttentionPath path;
  int head_dim;
};

std::string path_name(const testing::TestParamInfo<PathCase>& info) {
  const char* names[] = {"Simt", "Mma", "Wgmma"};
  return names[static_cast<int>(info.param.path)] + std::to_string(info.param.head_dim);
}

class CudaAttention : public testing::TestWithParam<PathCase> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "capability");
    if (GetParam().path == AttentionPath::kWgmma && major != 9) {
      GTEST_SKIP() << "no CUDA device of compute capability 9.0";
    }
  }
  Shape shape(Shape s) const {
    s.head_dim = GetParam().head_dim;
    return s;
  }
  void expect_reference(const Shape& s, const Tolerance& tolerance = kBf16) {
    SCOPED_TRACE(testing::Message() << s);
    const auto x = normal_inputs<bf16>(s);
    expect_agreement(run_on_gpu(x, GetParam().path), reference(x), x, tolerance);
  }
};

TEST_P(CudaAttention, TailsOfEveryLength) {
  for (const std::int64_t tokens : {1, 2, 5, 63, 64, 65, 127, 128, 129, 190, 257}) {
    // With two keys dS is a small difference beside the rounding of delta.
    expect_reference(shape({.tokens = tokens}), tokens <= 2 ? kBf16LargeLogits : kBf16);
  }
}

TEST_P(CudaAttention, Windows) {
  for (const std::int64_t window : {1, 2, 63, 64, 65, 127, 128, 129, 321}) {
    // W = 1 sees only itself: dQ and dK are zero but for rounding, which the count test bounds.
    if (window > 1) expect_reference(shape({.tokens = 320, .window = window}));
  }
}

TEST_P(CudaAttention, DocumentsWithBoundariesAroundTileEdges) {
  expect_reference(
      shape({.tokens = 700, .starts = {1, 2, 63, 64, 65, 127, 128, 129, 200, 383, 384, 500, 501}}));
  expect_reference(shape({.tokens = 700,
                          .window = 100,
                          .starts = {1, 2, 63, 64, 65, 127, 128, 129, 200, 383, 384, 500, 501}}));
}

TEST_P(CudaAttention, BatchRowsAreDocuments) {
  expect_reference(shape({.tokens = 3 * 150, .window = 64, .starts = {150, 300}}));
}

TEST_P(CudaAttention, GroupsOfQueryHeads) {
  for (const auto& [q_heads, kv_heads] :
       {std::pair{1, 1}, {3, 3}, {8, 4}, {8, 2}, {8, 1}, {6, 2}}) {
    expect_reference(shape({.tokens = 197, .q_heads = q_heads, .kv_heads = kv_heads}));
  }
}

TEST_P(CudaAttention, LargeLogits) {
  for (const double std_dev : {8.0, 25.0, 60.0}) {
    expect_reference(shape({.tokens = 400, .q_heads = 4, .kv_heads = 2, .logit_std = std_dev}),
                     kBf16LargeLogits);
  }
}

TEST_P(CudaAttention, WithoutSoftcapOrWithALooseOne) {
  if (GetParam().path == AttentionPath::kWgmma) GTEST_SKIP() << "path needs a softcap <= 64";
  for (const double softcap : {0.0, 100.0}) {
    expect_reference(shape({.tokens = 300, .window = 130, .starts = {170}, .softcap = softcap}));
    expect_reference(shape({.tokens = 300, .logit_std = 25, .softcap = softcap}), kBf16LargeLogits);
  }
}

// With q = 0 every visible key weighs the same, so lse counts the keys and o counts, in column c,
// those with v = 1 there: each key's v is one-hot at its number modulo h.
TEST_P(CudaAttention, CountsExactlyTheVisibleKeys) {
  for (const std::int64_t window : {0, 1, 2, 64, 65, 100}) {
    const Shape s = shape({.tokens = 421, .window = window, .starts = {1, 64, 193, 300}});
    SCOPED_TRACE(testing::Message() << s);
    auto x = normal_inputs<bf16>(s);
    const std::size_t h = s.head_dim, q_width = 2 * h;
    for (std::size_t i = 0; i < x.qkv.size(); ++i) {
      const std::size_t token = i / x.row(), column = i % x.row();
      if (column < q_width) x.qkv[i] = bf16(0.0f);
      if (column >= q_width + h) x.qkv[i] = bf16(column - q_width - h == token % h ? 1.0f : 0.0f);
    }
    const auto out = run_on_gpu(x, GetParam().path);
    for (std::size_t i = 0; i < std::size_t(s.tokens); ++i) {
      const auto lo = std::size_t(x.mask.lo[i]);
      const double visible = double(i - lo + 1);
      std::vector<double> count(h);
      for (std::size_t j = lo; j <= i; ++j) count[j % h] += 1;
      for (std::size_t head = 0; head < 2; ++head) {
        ASSERT_NEAR(out.lse[head * s.tokens + i], std::log2(visible), 1e-5) << "query " << i;
        for (std::size_t c = 0; c < h; ++c) {
          const double got = double(out.o[(i * 2 + head) * h + c]);
          ASSERT_NEAR(got, count[c] / visible, count[c] / visible * 0x1p-8)
              << "query " << i << " column " << c;
        }
      }
    }
  }
}

// q . k = +-1e4: t is +-1 and its slope 0, so q and k get no gradient, and nothing overflows.
TEST_P(CudaAttention, SaturatedScoresGiveNoGradient) {
  const Shape s = shape({.tokens = 200, .window = 70});
  auto x = normal_inputs<bf16>(s);
  const std::size_t h = s.head_dim;
  for (std::size_t i = 0; i < x.qkv.size(); ++i) {
    const std::size_t token = i / x.row(), column = i % x.row();
    const float sign = token % 3 == 0 ? -1.0f : 1.0f;
    const float value = std::sqrt(1e4f / float(std::sqrt(double(h))));
    if (column < 3 * h) x.qkv[i] = bf16(column < 2 * h ? value : sign * value);
  }
  const auto out = run_on_gpu(x, GetParam().path);
  const auto want = reference(x);
  EXPECT_LE(relative_l2(converted<double>(out.o), want.o), kBf16.o);
  EXPECT_LE(relative_l2(columns(out.grad_qkv, x, Part::kV), columns(want.grad_qkv, x, Part::kV)),
            kBf16.grad_v);
  for (const Part part : {Part::kQ, Part::kK}) {
    EXPECT_THAT(columns(out.grad_qkv, x, part), testing::Each(0.0));
  }
}

// All scores near -49: sums of exp(-49) must not vanish, and masked keys, whose score is 0, must
// not outweigh visible ones.
TEST_P(CudaAttention, StronglyNegativeScores) {
  const Shape s = shape({.tokens = 213, .window = 90, .starts = {100}});
  auto x = normal_inputs<bf16>(s);
  const std::size_t h = s.head_dim;
  const float value = std::sqrt(115.0f / float(std::sqrt(double(h))));
  for (std::size_t i = 0; i < x.qkv.size(); ++i) {
    const std::size_t column = i % x.row();
    if (column < 3 * h) x.qkv[i] = bf16(column < 2 * h ? -value : value);
  }
  const auto out = run_on_gpu(x, GetParam().path);
  const auto want = reference(x);
  EXPECT_LE(relative_l2(converted<double>(out.o), want.o), kBf16.o);
  EXPECT_LE(relative_l2(out.lse, want.lse), 1e-4);
  EXPECT_LE(relative_l2(columns(out.grad_qkv, x, Part::kV), columns(want.grad_qkv, x, Part::kV)),
            kBf16.grad_v);
  // Equal keys: dQ, the sum of a row of dS, is zero; dK is not.
  EXPECT_LE(relative_l2(columns(out.grad_qkv, x, Part::kK), columns(want.grad_qkv, x, Part::kK)),
            kBf16LargeLogits.grad_qk);
}

// Full length, against the simplest path, and the same bits every time while the GPU is busy.
TEST_P(CudaAttention, LongSequencesAgreeWithTheSimplePath) {
  if (GetParam().path == AttentionPath::kSimt) GTEST_SKIP() << "is the simple path";
  for (const std::int64_t window : {0, 4096}) {
    const Shape s = shape({.tokens = 8191, .window = window, .starts = {100, 700, 701}});
    SCOPED_TRACE(testing::Message() << s);
    const auto x = normal_inputs<bf16>(s);
    const auto simple = run_on_gpu(x, AttentionPath::kSimt);
    Outputs<double> want{converted<double>(simple.o), converted<double>(simple.grad_qkv), {}, {}};
    for (const float lse : simple.lse) want.lse.push_back(lse);
    const auto first = run_on_gpu(x, GetParam().path);
    expect_agreement(first, want, x, kBf16);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto again = run_on_gpu(x, GetParam().path);
      ASSERT_EQ(again.o, first.o);
      ASSERT_EQ(again.grad_qkv, first.grad_qkv);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bf16,
                         CudaAttention,
                         testing::Values(PathCase{AttentionPath::kSimt, 256},
                                         PathCase{AttentionPath::kMma, 256},
                                         PathCase{AttentionPath::kMma, 128},
                                         PathCase{AttentionPath::kWgmma, 256},
                                         PathCase{AttentionPath::kWgmma, 128}),
                         path_name);

class CudaAttentionHeadDims : public CudaAttention {};

TEST_P(CudaAttentionHeadDims, BothTypesAgreeWithTheReference) {
  for (const double softcap : {50.0, 0.0}) {
    const Shape s = shape({.tokens = 173,
                           .q_heads = 4,
                           .kv_heads = 2,
                           .window = 60,
                           .starts = {1, 32, 33, 100},
                           .logit_std = 4,
                           .softcap = softcap});
    SCOPED_TRACE(testing::Message() << s);
    const auto narrow = normal_inputs<bf16>(s);
    expect_agreement(
        run_on_gpu(narrow, AttentionPath::kSimt), reference(narrow), narrow, kBf16LargeLogits);
    const auto wide = normal_inputs<float>(s);
    expect_agreement(run_on_gpu(wide, AttentionPath::kSimt), reference(wide), wide, kF32);
  }
}

INSTANTIATE_TEST_SUITE_P(Simt,
                         CudaAttentionHeadDims,
                         testing::Values(PathCase{AttentionPath::kSimt, 1},
                                         PathCase{AttentionPath::kSimt, 7},
                                         PathCase{AttentionPath::kSimt, 8},
                                         PathCase{AttentionPath::kSimt, 16},
                                         PathCase{AttentionPath::kSimt, 32},
                                         PathCase{AttentionPath::kSimt, 64},
                                         PathCase{AttentionPath::kSimt, 80},
                                         PathCase{AttentionPath::kSimt, 128},
                                         PathCase{AttentionPath::kSimt, 256}),
                         path_name);

TEST(CudaAttentionContract, RefusesWhatItDoesNotCover) {
  const kernels::AttentionShape good{0, 8, 4, 256, 1, 50};
  const auto forward = [](kernels::AttentionShape s, AttentionPath path) {
    return kernels::attention_forward<__nv_bfloat16>({s, {}, {}, {}, {}}, path, nullptr);
  };
  EXPECT_EQ(forward(good, AttentionPath::kWgmma), cudaSuccess);  // N = 0 launches nothing
  auto bad = good;
  bad.kv_heads = 3;
  EXPECT_EQ(forward(bad, AttentionPath::kSimt), cudaErrorInvalidValue);
  bad = good;
  bad.head_dim = 257;
  EXPECT_EQ(forward(bad, AttentionPath::kSimt), cudaErrorInvalidValue);
  bad = good;
  bad.head_dim = 80;
  EXPECT_EQ(forward(bad, AttentionPath::kMma), cudaErrorNotSupported);
  bad = good;
  bad.softcap = 0;
  EXPECT_EQ(forward(bad, AttentionPath::kWgmma), cudaErrorNotSupported);
}

}  // namespace
}  // namespace g2::test
