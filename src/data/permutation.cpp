#include "data/permutation.h"

#include <bit>
#include <cassert>

#include "base/philox.h"

namespace g2::data {
namespace {

constexpr int kRounds = 6;

std::uint32_t round_function(std::uint32_t half,
                             int round,
                             std::uint64_t seed,
                             std::int64_t epoch) {
  const std::uint64_t block = (static_cast<std::uint64_t>(round) << 32) | half;
  return base::random_block(
      seed, base::RandomPurpose::kShuffle, static_cast<std::uint32_t>(epoch), block)[0];
}

}  // namespace

std::int64_t permuted(std::int64_t index, std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  assert(index >= 0 && index < n);
  const int bits = std::bit_width(static_cast<std::uint64_t>(n - 1));
  const int half_bits = bits < 2 ? 1 : (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed =
          left ^ (round_function(static_cast<std::uint32_t>(right), round, seed, epoch) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(value);
}

}  // namespace g2::data
