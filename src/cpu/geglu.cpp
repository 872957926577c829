#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/simd_math.h"

namespace g2::cpu {
namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

template <typename A>
A inner_tanh(A g) {
  return fast_tanh(A(kSqrt2OverPi) * (g + A(kCubic) * g * g * g));
}

}  // namespace

void CpuOps::geglu_forward(const GegluForward& p) {
  const std::int64_t n = p.m.dim(0);
  const std::int64_t f = p.m.dim(1);
  require(p.gate_up.dim(0) == n && p.gate_up.dim(1) == 2 * f,
          "geglu_forward",
          "gate_up must be [N, 2f]",
          p.gate_up,
          p.m);
  require_dtype("geglu_forward", p.m.dtype, p.gate_up);
  for_dtype("geglu_forward", p.m.dtype, [&]<typename T>() {
    using A = Work<T>;
    pool_.run_ranges(n, rows_per_task(2 * f), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* gate = p.gate_up.as<T>() + row * 2 * f;
        const T* up = gate + f;
        T* m = p.m.as<T>() + row * f;
        for (std::int64_t i = 0; i < f; ++i) {
          const A g = A(gate[i]);
          m[i] = T(A(0.5) * g * (A(1) + inner_tanh(g)) * A(up[i]));
        }
      }
    });
  });
}

void CpuOps::geglu_backward(const GegluBackward& p) {
  const std::int64_t n = p.grad_m.dim(0);
  const std::int64_t f = p.grad_m.dim(1);
  require(p.gate_up.dim(1) == 2 * f && p.grad_gate_up.size() == 2 * n * f,
          "geglu_backward",
          "gate_up must be [N, 2f]",
          p.gate_up,
          p.grad_m,
          p.grad_gate_up);
  require_dtype("geglu_backward", p.grad_m.dtype, p.gate_up, p.grad_gate_up);
  for_dtype("geglu_backward", p.grad_m.dtype, [&]<typename T>() {
    using A = Work<T>;
    pool_.run_ranges(n, rows_per_task(2 * f), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* grad_m = p.grad_m.as<T>() + row * f;
        const T* gate = p.gate_up.as<T>() + row * 2 * f;
        const T* up = gate + f;
        T* grad_gate = p.grad_gate_up.as<T>() + row * 2 * f;
        T* grad_up = grad_gate + f;
        for (std::int64_t i = 0; i < f; ++i) {
          const A g = A(gate[i]);
          const A u = A(up[i]);
          const A dm = A(grad_m[i]);
          const A t = inner_tanh(g);
          const A slope = A(kSqrt2OverPi) * (A(1) + A(3 * kCubic) * g * g);
          grad_up[i] = T(dm * A(0.5) * g * (A(1) + t));
          grad_gate[i] = T(dm * u * (A(0.5) * (A(1) + t) + A(0.5) * g * (A(1) - t * t) * slope));
        }
      }
    });
  });
}

}  // namespace g2::cpu
