// The global gradient norm in a fixed tree, and the clip factor that follows from it.
//
//   block_sums[b] = sum of x[i]^2 over block b of kNormBlock elements
//   norm = sqrt(sum of block_sums);  factor = max_norm > 0 and norm > max_norm ? max_norm / norm :
//   1
//
//   x             [n]  f32
//   block_sums    [ceil(n / kNormBlock)]  f64
//   norm, factor  [1]  f64
//
// Requires     count >= 0, may pass 2^31. No element launches nothing; no block sum gives norm 0.
// Arithmetic   f64.
// Aliasing     none.
// Determinism  bitwise: fixed trees over elements and over blocks, whatever the grid.
// Twin, test   src/cpu/norm.cpp, tests/ops/cuda_flat_test.cpp; speed in tests/bench/cuda_bench.cpp
// Source       torch.nn.utils.clip_grad_norm_, without the 1e-6 in its divisor
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

inline constexpr std::int64_t kNormBlock = 16384;

struct BlockSumsOfSquares {
  const float* x;
  double* block_sums;
  std::int64_t count;
};

struct ClipFactor {
  const double* block_sums;
  std::int64_t blocks;
  double max_norm;  // 0: no clipping
  double* norm;
  double* factor;
};

cudaError_t block_sums_of_squares(const BlockSumsOfSquares& p, cudaStream_t stream);
cudaError_t clip_factor(const ClipFactor& p, cudaStream_t stream);

}  // namespace g2::kernels
