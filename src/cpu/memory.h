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

// What lm_head_loss keeps of a valid row; values of type A, held exactly.
struct LossRow {
  double loss = 0, z_loss = 0;
  double grad_factor = 0;
  std::int32_t flags = 0;  // LossFlag bits
  std::int32_t top1 = 0;
};

struct CpuOps::Memory {
  // Slots: operands of a product widened from bf16, its result before rounding; partial sums.
  Scratch<float, 4> f32;
  Scratch<double, 4> f64;
  std::vector<Segment> segments;         // of the attention op that runs
  std::vector<std::int32_t> valid_rows;  // of lm_head_loss
  std::vector<LossRow> loss_rows;        // of its chunk

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
