#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "tests/support/support.h"

namespace g2::base {
namespace {

using testing::HasSubstr;

TEST(Philox, GivesThePublishedVectors) {  // Random123, kat_vectors, philox4x32-10
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NormalQuantile, MatchesKnownQuantiles) {
  EXPECT_EQ(normal_quantile(0.5), 0.0);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile(0.9), 1.2815515655446004, 1e-14);
  EXPECT_NEAR(normal_quantile(1e-5), -4.264890793922825, 1e-13);
  EXPECT_NEAR(normal_quantile(0x1p-33), -6.267, 0.1);  // the smallest value uniform_open gives
  EXPECT_DOUBLE_EQ(normal_quantile(0.25), -normal_quantile(0.75));
}

TEST(ThreadPool, RunsEachTaskOnceForAnyThreadCount) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int count : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> calls(count);
      pool.run(count, [&](std::int64_t i) { ++calls[i]; });
      for (const auto& c : calls) ASSERT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, RethrowsTheLowestFailureAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    try {
      pool.run(50, [](std::int64_t i) {
        if (i == 9 || i == 31) throw std::runtime_error(std::to_string(i));
      });
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "9");
    }
  }
  std::atomic<int> sum{0};
  pool.run_ranges(10, 4, [&](std::int64_t begin, std::int64_t end) {
    pool.run(end - begin, [&](std::int64_t) { ++sum; });  // nested: runs inline
  });
  EXPECT_EQ(sum, 10);
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(bf16(1.00390625F).bits, 0x3f80);  // halfway, to even
  EXPECT_EQ(bf16(1.01171875F).bits, 0x3f82);  // halfway, to even
  EXPECT_EQ(bf16(59.866520F).bits, bf16(59.75F).bits);
  EXPECT_TRUE(std::isnan(float(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Text, SuggestsTheNearestName) {
  EXPECT_EQ(nearest("learing_rate", {"learning_rate", "beta1"}), "learning_rate");
  EXPECT_EQ(nearest("zzz", {"learning_rate", "beta1"}), "");
  EXPECT_EQ(duration_text(3725.4), "1:02:05");
  EXPECT_EQ(duration_text(208800), "2 days 10 h");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(number_text(0.1), "0.1");
}

TEST(File, AtomicWriteReplacesTheWholeContent) {
  const test::TempFolder folder;
  write_file_atomic(folder / "a", "first, and longer");
  write_file_atomic(folder / "a", "second");
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_EQ(MappedFile(folder / "a").bytes().size(), 6U);
  write_file_atomic(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(File, ErrorsNameThePath) {
  const test::TempFolder folder;
  try {
    read_file(folder / "missing");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("missing: cannot open: No such file"));
    EXPECT_EQ(e.exit_code(), kIo);
  }
  EXPECT_THROW(MappedFile(folder.path()), IoError);
}

TEST(Hash, MatchesXxh128sumAndPieces) {
  EXPECT_EQ(hash128_hex("", 0), "99aa06d3014798d86001c324468d497f");
  Hasher128 hasher;
  hasher.update("ab", 2);
  hasher.update("c", 1);
  EXPECT_EQ(hasher.hex(), hash128_hex("abc", 3));
}

}  // namespace
}  // namespace g2::base
