// TMA descriptors of per-head matrices inside rows of several heads.
//
// The map covers [tokens, heads, head_dim] bf16 values whose rows lie `row_elements` apart. One box
// is `box_rows` consecutive tokens of one head, written to shared memory as [head_dim /
// 64][box_rows][64] with the 128-byte swizzle: what kernels/hopper.cuh calls a tile. Rows past
// `tokens` read as zero.
//
// Requires     data and row_elements * 2 aligned to 16 bytes; head_dim a multiple of 64; box_rows
// <=
//              256. No GPU work: the map is a host value, passed to kernels as __grid_constant__.
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

[[nodiscard]] cudaError_t encode_tensor_map(const HeadMatrix& matrix,
                                            int box_rows,
                                            CUtensorMap* map);

}  // namespace g2::kernels
