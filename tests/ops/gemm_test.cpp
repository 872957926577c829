// Must catch: a transposition flag swapped, tiles that overlap or leave a gap at their edges, C
// read although beta is 0, alpha or beta dropped, bits that depend on the threads or on later rows.
#include "cpu/gemm.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/support.h"

namespace g2::cpu {
namespace {

template <typename A>
class Gemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Types);

// Small integers: every sum is exact, so results can be compared bit by bit.
template <typename A>
std::vector<A> small_integers(std::mt19937_64& rng, std::int64_t count) {
  std::vector<A> values(static_cast<std::size_t>(count));
  for (A& v : values) v = static_cast<A>(static_cast<int>(rng() % 7) - 3);
  return values;
}

struct Size {
  std::int64_t m, n, k;
};

template <typename A>
void expect_exact(Size size, bool a_transposed, bool b_transposed) {
  const auto [m, n, k] = size;
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << (a_transposed ? " A^T" : "")
                                  << (b_transposed ? " B^T" : ""));
  std::mt19937_64 rng(1);
  constexpr std::int64_t kPad = 3;
  const std::int64_t a_ld = (a_transposed ? m : k) + kPad;
  const std::int64_t b_ld = (b_transposed ? k : n) + kPad;
  const auto a = small_integers<A>(rng, (a_transposed ? k : m) * a_ld);
  const auto b = small_integers<A>(rng, (b_transposed ? n : k) * b_ld);
  const std::int64_t c_ld = n + kPad;
  const std::vector<A> c0 = small_integers<A>(rng, m * c_ld);
  for (const A beta : {A(0), A(1), A(-2)}) {
    for (const int threads : {1, 3}) {
      base::ThreadPool pool(threads);
      std::vector<A> c = c0;
      if (beta == 0) {
        for (std::int64_t i = 0; i < m; ++i) {
          std::fill_n(c.begin() + i * c_ld, n, std::numeric_limits<A>::quiet_NaN());
        }
      }
      gemm<A>(pool,
              {.m = m,
               .n = n,
               .k = k,
               .a = {a.data(), a_ld, a_transposed},
               .b = {b.data(), b_ld, b_transposed},
               .c = c.data(),
               .c_ld = c_ld,
               .alpha = 2,
               .beta = beta});
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < c_ld; ++j) {
          A want = c0[i * c_ld + j];  // the padding stays
          if (j < n) {
            A sum = 0;
            for (std::int64_t l = 0; l < k; ++l) {
              sum += a[a_transposed ? l * a_ld + i : i * a_ld + l] *
                     b[b_transposed ? j * b_ld + l : l * b_ld + j];
            }
            want = 2 * sum + beta * want;
          }
          ASSERT_EQ(c[i * c_ld + j], want) << i << ", " << j;
        }
      }
    }
  }
}

TYPED_TEST(Gemm, IsExactOnSmallIntegersAtTileEdges) {
  for (const Size size : {Size{1, 1, 1},
                          {3, 2, 5},
                          {127, 129, 17},
                          {128, 1, 33},
                          {1, 300, 64},
                          {257, 127, 3},
                          {513, 12, 7}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        expect_exact<TypeParam>(size, a_transposed, b_transposed);
      }
    }
  }
}

TYPED_TEST(Gemm, EmptyExtents) {
  base::ThreadPool pool(2);
  TypeParam c = 5;
  const TypeParam x = 7;
  gemm<TypeParam>(pool, {0, 1, 1, {&x, 1}, {&x, 1}, &c, 1});
  gemm<TypeParam>(pool, {1, 0, 1, {&x, 1}, {&x, 1}, &c, 1});
  EXPECT_EQ(c, 5);
  gemm<TypeParam>(pool, {1, 1, 0, {&x, 1}, {&x, 1}, &c, 1});
  EXPECT_EQ(c, 0);
}

TYPED_TEST(Gemm, BitsDependNeitherOnThreadsNorOnLaterTiles) {
  using A = TypeParam;
  std::mt19937_64 rng(2);
  const std::int64_t m = 700, n = 300, k = 111;
  const auto a = test::normal<A>(rng, m * k);
  const auto b = test::normal<A>(rng, n * k);
  std::vector<A> first;
  for (const int threads : {1, 2, 5}) {
    base::ThreadPool pool(threads);
    std::vector<A> c(m * n);
    gemm<A>(pool, {m, n, k, {a.data(), k}, {b.data(), k, true}, c.data(), n});
    if (first.empty()) first = c;
    EXPECT_TRUE(c == first) << threads;
  }
  base::ThreadPool pool(2);
  constexpr Tile kTile{128, 256};
  std::vector<A> all(m * n), some(m * n);
  gemm<A>(pool, {m, n, k, {a.data(), k}, {b.data(), k, true}, all.data(), n}, kTile);
  gemm<A>(pool, {256, n, k, {a.data(), k}, {b.data(), k, true}, some.data(), n}, kTile);
  EXPECT_TRUE(std::equal(some.begin(), some.begin() + 256 * n, all.begin()));
}

TEST(TileFor, CoversEverySizeWithinItsBounds) {
  for (const std::int64_t m : {0, 1, 128, 129, 511, 2048, 100000}) {
    for (const std::int64_t n : {0, 1, 128, 260, 512, 2048, 256000}) {
      const Tile tile = tile_for(m, n);
      EXPECT_GE(tile.rows, 128);
      EXPECT_LE(tile.rows, 512);
      EXPECT_GE(tile.columns, 128);
      EXPECT_LE(tile.columns, 512);
    }
  }
  EXPECT_EQ(tile_for(2048, 2048).rows, 512);
  EXPECT_EQ(tile_for(2048, 256).rows, 256);
}

}  // namespace
}  // namespace g2::cpu
