// What CpuOps keeps from call to call, so that steady state allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/scratch.h"

namespace g2::cpu {

// Tokens [begin, end) of the flat axis that see only one another.
struct Segment {
  std::int64_t begin, end;
};

struct CpuOps::Memory {
  // Slots: operands of a product widened from bf16, its result before rounding; partial sums.
  Scratch<float, 4> f32;
  Scratch<double, 4> f64;
  std::vector<Segment> segments;  // of the attention op that runs

  template <typename A>
  auto& of() {
    if constexpr (std::is_same_v<A, float>) {
      return f32;
    } else {
      return f64;
    }
  }
};

}  // namespace g2::cpu
