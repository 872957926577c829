// Sums in a fixed number of lanes: compilers turn them into vector code without reordering freedom,
// and the result depends on the length alone.
#pragma once

#include <cstdint>

namespace g2::cpu {

// sum over i in [0, n) of term(i), in type A: lane i mod 16 first, then the lanes pairwise.
template <typename A, typename Term>
A lane_sum(std::int64_t n, const Term& term) {
  constexpr int kLanes = 16;
  A lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (int j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace g2::cpu
