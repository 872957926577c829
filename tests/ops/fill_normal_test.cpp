// Must catch: another word order, purpose or quantile, a second rounding, streams or seeds that
// share numbers, threads that shift the sequence. The bits are those of scripts/reference_init.py.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tests/ops/cpu_ops_support.h"

namespace g2 {
namespace {

using test::Array;
using test::ops;

std::vector<std::uint32_t> float_bits(std::uint64_t seed,
                                      std::uint32_t stream,
                                      double std_dev,
                                      std::int64_t count) {
  const Array y(DType::kF32, {count});
  ops().fill_normal({y, seed, stream, std_dev});
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(count));
  std::memcpy(bits.data(), y->data, bits.size() * sizeof(bits[0]));
  return bits;
}

// fill_normal(seed, stream, count, std_dev).astype(float32).view(uint32) of the script.
TEST(FillNormal, HasTheBitsOfTheNumpyTwin) {
  EXPECT_EQ(float_bits(7, 3, 0.02, 6),
            (std::vector<std::uint32_t>{
                0x3cd69b92, 0xbc5ed185, 0xbc63a7c9, 0xbb88fe13, 0x3b483baa, 0xbc3f283a}));
  // Every word of a long stream of a wide seed, into the tails of the distribution.
  std::uint64_t sum = 0, weighted = 0, index = 0;
  for (const std::uint32_t bits : float_bits(0x123456789abcdef0, 77, 1.0, 100003)) {
    sum += bits;
    weighted += ++index * bits;
  }
  EXPECT_EQ(sum, 213403852806921U);
  EXPECT_EQ(weighted, 10683229313196516609U);
}

TEST(FillNormal, AShorterFillIsAPrefix) {
  const std::vector<std::uint32_t> all = float_bits(1, 0, 1, 40001);
  for (const std::int64_t count : {0, 1, 3, 4, 5, 16384, 16385}) {
    const std::vector<std::uint32_t> some = float_bits(1, 0, 1, count);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << count;
  }
}

TEST(FillNormal, F64HoldsTheF32Values) {
  const Array wide(DType::kF64, {1000}), narrow(DType::kF32, {1000});
  ops().fill_normal({wide, 5, 6, 0.3});
  ops().fill_normal({narrow, 5, 6, 0.3});
  EXPECT_EQ(wide.values(), narrow.values());
}

TEST(FillNormal, SeedsAndStreamsShareNothing) {
  const auto first = float_bits(1, 0, 1, 1000);
  for (const auto& other : {float_bits(1, 1, 1, 1000),
                            float_bits(2, 0, 1, 1000),
                            float_bits(1 + (std::uint64_t{1} << 32), 0, 1, 1000)}) {
    int equal = 0;
    for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i] ? 1 : 0;
    EXPECT_LE(equal, 1);
  }
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  constexpr std::int64_t kCount = 200000;
  const Array y(DType::kF32, {kCount});
  ops().fill_normal({y, 9, 0, 2.0});
  double moments[5] = {};
  for (const double value : y.values()) {
    double power = 1;
    for (double& m : moments) {
      m += power / kCount;
      power *= value / 2;
    }
  }
  // Five standard errors: sqrt(1, 2, 15, 96) / sqrt(count).
  const double unit = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(moments[1], 0, unit);
  EXPECT_NEAR(moments[2], 1, unit * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, unit * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, unit * std::sqrt(96.0));
}

}  // namespace
}  // namespace g2
