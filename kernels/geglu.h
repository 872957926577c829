// GeGLU: gelu_tanh(gate) * up, forward and backward.
//
//   forward   m = cast_T(gelu(g) u),  gelu(g) = g (1 + t) / 2,
//             t = tanh(v),  v = sqrt(2/pi) (g + 0.044715 g^3)
//   backward  grad_up   = cast_T(grad_m gelu(g))
//             grad_gate = cast_T(grad_m u gelu'(g)),
//             gelu'(g) = (1 + t) / 2 + g (1 - t^2) / 2 sqrt(2/pi) (1 + 3 * 0.044715 g^2)
//
//   gate_up, grad_gate_up  [N, 2f]  T  gate in the first half of a row, up in the second
//   m, grad_m              [N, f]   T
//
// Requires     width >= 1; tokens * width may pass 2^31. tokens == 0 launches nothing.
// Arithmetic   f32; (1 + t) / 2 = 1 / (1 + e^-2v) and 1 - t^2 = 4 q / (1 + q)^2 with q = e^-2|v|,
//              so neither tail loses digits. exp and division are the fast ones: 1e-6 relative.
// Aliasing     grad_gate_up may be gate_up.
// Determinism  bitwise: no sums.
// Twin, test   src/cpu/geglu.cpp, tests/ops/cuda_rows_test.cpp; speed in tests/bench/cuda_bench.cpp
// Source       Gemma2MLP with gelu_pytorch_tanh in transformers
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

template <typename T>
struct GegluForward {
  const T* gate_up;
  T* m;
  std::int64_t tokens;
  int width;  // f
};

template <typename T>
struct GegluBackward {
  const T* grad_m;
  const T* gate_up;
  T* grad_gate_up;
  std::int64_t tokens;
  int width;  // f
};

template <typename T>
cudaError_t geglu_forward(const GegluForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t geglu_backward(const GegluBackward<T>& p, cudaStream_t stream);

}  // namespace g2::kernels
