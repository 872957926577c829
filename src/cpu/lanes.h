// Sums and maxima in a fixed number of lanes: compilers turn them into vector code without
// reordering freedom, and the result depends on the length alone.
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

// The largest of x[0..n), n >= 1; unspecified if there is a NaN.
template <typename A>
A lane_max(std::int64_t n, const A* x) {
  constexpr int kLanes = 16;
  A lanes[kLanes];
  for (A& lane : lanes) lane = x[0];
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  A largest = lanes[0];
  for (const A lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

}  // namespace g2::cpu
