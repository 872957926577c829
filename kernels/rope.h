// Rotary position embedding, in place, on the q and k heads of fused rows.
//
//   for each of the first `heads` heads of row n, with c, s of positions[n], s negated if inverse:
//   x'[i]       = cast_T(x[i] c[i] - x[i + h/2] s[i])
//   x'[i + h/2] = cast_T(x[i + h/2] c[i] + x[i] s[i])          0 <= i < h/2
//
//   x          [N, row_width]  T    rotated in place; columns behind the heads stay as they are
//   positions  [N]             i32  rows of the table
//   table      [P, h]          f32  cos in the first half of a row, sin in the second
//
// Requires     head_dim even, heads * head_dim <= row_width; tokens * row_width may pass 2^31.
//              tokens == 0 launches nothing.
// Arithmetic   f32, one rounding.
// Determinism  bitwise: no sums.
// Twin, test   src/cpu/rope.cpp, tests/ops/cuda_rows_test.cpp; speed in tests/bench/cuda_bench.cpp
// Source       apply_rotary_pos_emb in transformers (rotate_half)
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

template <typename T>
struct Rope {
  T* x;
  const int* positions;
  const float* table;
  std::int64_t tokens;
  int row_width;
  int heads;
  int head_dim;
  bool inverse;
};

template <typename T>
cudaError_t rope(const Rope<T>& p, cudaStream_t stream);

}  // namespace g2::kernels
