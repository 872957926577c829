// The scratch CpuOps keeps from call to call.
#pragma once

#include "cpu/cpu_ops.h"
#include "cpu/scratch.h"

namespace g2::cpu {

struct CpuOps::Memory {
  // Slots: operands of a product widened from bf16, its result before rounding; partial sums.
  Scratch<float, 4> f32;
  Scratch<double, 4> f64;

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
