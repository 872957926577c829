// A pseudo-random order of [0, n) that is computed, not stored.
#pragma once

#include <cstdint>

namespace g2::data {

// Place of `index` in epoch `epoch`'s order: a bijection of [0, n) that depends on (seed, epoch, n)
// only. A six-round Feistel network with Philox as round function, walked until it falls into
// range. Requires 0 <= index < n.
std::int64_t permuted(std::int64_t index, std::int64_t n, std::uint64_t seed, std::int64_t epoch);

}  // namespace g2::data
