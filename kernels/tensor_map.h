// TMA descriptors of bf16 matrices: one of several heads in rows they share, or a plain one.
//
// A box arrives in shared memory as [columns / 64][box_rows][64] with the 128-byte swizzle: what
// kernels/hopper.cuh calls a tile. What lies outside the matrix reads as zero and is not written.
//   HeadMatrix  [tokens, heads, head_dim], rows `row_elements` apart; a box is all columns of
//               `box_rows` consecutive tokens of one head
//   Matrix      [rows, columns], rows `row_elements` apart; a box is 64 columns of `box_rows` rows
//
// Requires     data and row_elements * 2 aligned to 16 bytes; head_dim a multiple of 64; box_rows
//              at most 256. No GPU work: the map is a host value, passed to kernels as
//              __grid_constant__.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

struct HeadMatrix {
  const __nv_bfloat16* data;
  std::int64_t tokens;
  std::int64_t row_elements;
  int heads;
  int head_dim;
};

struct Matrix {
  const __nv_bfloat16* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_elements;
};

[[nodiscard]] cudaError_t encode_tensor_map(const HeadMatrix& matrix,
                                            int box_rows,
                                            CUtensorMap* map);
[[nodiscard]] cudaError_t encode_tensor_map(const Matrix& matrix, int box_rows, CUtensorMap* map);

}  // namespace g2::kernels
