// RMSNorm with Gemma's 1 + w gain: forward, forward behind a residual add, backward.
//
//   forward      r[n] = 1 / sqrt(mean_i x[n,i]^2 + eps)
//                y[n,i] = cast_T(x[n,i] r[n] (1 + w[i]))
//   add forward  sum[n] = cast_T(residual[n] + branch[n] r_post[n] (1 + w_post))
//                y[n] = forward of the stored sum[n] with w_pre
//   backward     g = grad_y (1 + w)
//                grad_x[n,i] = cast_T(residual[n,i] + r g_i - x_i r^3 mean_j(g_j x_j))
//                grad_w[i] (+)= sum_n grad_y[n,i] x[n,i] r[n]
//
// Requires     1 <= hidden <= kMaxNormHidden; tokens * hidden may pass 2^31. tokens == 0 launches
//              nothing, except that backward then clears a grad_w it does not add to.
// Arithmetic   f32 throughout, one rounding to T at each store.
// Aliasing     y may be x; sum may be residual; y of the add may be branch; grad_x may be residual.
// Determinism  bitwise: a block a row, fixed trees, no atomics. grad_w is summed over runs of rows
//              whose length follows from tokens alone, then over the runs.
// Twin, test   src/cpu/rmsnorm.cpp, tests/ops/cuda_rows_test.cpp; speed in
//              tests/bench/cuda_bench.cpp
// Source       Gemma2RMSNorm in transformers
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace g2::kernels {

inline constexpr int kMaxNormHidden = 6144;

template <typename T>
struct RmsnormForward {
  const T* x;  // [N, d]
  const T* w;  // [d]
  T* y;        // [N, d]
  float* r;    // [N]
  std::int64_t tokens;
  int hidden;
  float eps;
};

template <typename T>
struct RmsnormAddForward {
  const T* branch;    // [N, d]
  const T* w_post;    // [d]
  const T* residual;  // [N, d]
  const T* w_pre;     // [d]
  T* sum;             // [N, d]
  T* y;               // [N, d]
  float* r_post;      // [N]
  float* r_pre;       // [N]
  std::int64_t tokens;
  int hidden;
  float eps;
};

template <typename T>
struct RmsnormBackward {
  const T* grad_y;    // [N, d]
  const T* x;         // [N, d]
  const T* w;         // [d]
  const float* r;     // [N]
  const T* residual;  // [N, d], or null for 0
  T* grad_x;          // [N, d]
  float* grad_w;      // [d]
  bool accumulate_grad_w;
  float* workspace;  // rmsnorm_backward_workspace_bytes(), contents undefined before and after
  std::int64_t tokens;
  int hidden;
};

// At most 768 rows of `hidden` floats.
std::size_t rmsnorm_backward_workspace_bytes(std::int64_t tokens, int hidden);

template <typename T>
cudaError_t rmsnorm_forward(const RmsnormForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t rmsnorm_add_forward(const RmsnormAddForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t rmsnorm_backward(const RmsnormBackward<T>& p, cudaStream_t stream);

}  // namespace g2::kernels
