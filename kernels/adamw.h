// Decoupled AdamW over a flat range, with the cast of the new weights, in one pass.
//
//   g = factor grad
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   master -= learning_rate (m correction1 / (sqrt(v correction2) + eps) + weight_decay master)
//   copy = bf16(master)
//
//   master, m, v  [n]  f32  updated
//   grad          [n]  f32
//   copy          [n]  bf16, or null
//   factor        [1]  f64  on the device: the clip factor, known only there
//
// Requires     count >= 0, may pass 2^31 (0 launches nothing); correction = 1 / (1 - beta^step).
// Arithmetic   f32 with exact division and square root.
// Aliasing     none.
// Determinism  bitwise: no sums.
// Twin, test   src/cpu/adamw.cpp, tests/ops/cuda_flat_test.cpp; speed in tests/bench/cuda_bench.cpp
// Source       Loshchilov and Hutter, Decoupled Weight Decay Regularization; torch.optim.AdamW
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

struct Adamw {
  float* master;
  float* m;
  float* v;
  const float* grad;
  __nv_bfloat16* copy;
  const double* factor;
  std::int64_t count;
  float learning_rate;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float correction1;
  float correction2;
  float eps;
  float weight_decay;
};

cudaError_t adamw(const Adamw& p, cudaStream_t stream);

}  // namespace g2::kernels
