// Sums and maxima in a fixed number of lanes: compilers turn them into vector code without
// reordering freedom, and the result depends on the length alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace g2::cpu {

template <typename A, int kLanes>
A sum_lanes(A (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

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
  return sum_lanes(lanes);
}

template <typename A>
struct Replaced {
  A value;  // what takes the place of an element
  A term;   // what the element adds to the sum
};

// Replaces x[0..n) by body(x[i]).value; returns the sum of the terms in the order of lane_sum. The
// incomplete last vector is computed as a whole one too, on zeros.
template <typename A, typename Body>
A replace_and_sum(std::int64_t n, A* x, const Body& body) {
  constexpr int kLanes = 16;
  A lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const Replaced<A> r = body(x[i + j]);
      x[i + j] = r.value;
      lanes[j] += r.term;
    }
  }
  A tail[kLanes] = {};
  A terms[kLanes];
  std::copy(x + i, x + n, tail);
  for (int j = 0; j < kLanes; ++j) {
    const Replaced<A> r = body(tail[j]);
    tail[j] = r.value;
    terms[j] = r.term;
  }
  std::copy(tail, tail + (n - i), x + i);
  for (int j = 0; i + j < n; ++j) lanes[j] += terms[j];
  return sum_lanes(lanes);
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
