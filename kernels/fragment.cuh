// f32 accumulators of tensor-core products: which elements a lane holds, and what is done to them.
//
// Both mma.sync and wgmma keep a 16 x 8 block of an f32 accumulator in four registers of each lane
// of a warp: registers 0, 1 are row lane / 4, columns 2 (lane % 4) and the next; registers 2, 3 are
// the same columns eight rows below. Rounded to bf16 in pairs, two neighbouring blocks are exactly
// the A operand of a following product of depth 16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

// Relative error 1e-5 on an H200, a hundredth of a bf16 rounding.
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// {low, high} rounded to bf16.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
  return packed;
}

// Row and column of register `i` of block `block` in a strip of 16 x 8 blocks.
__device__ __forceinline__ int fragment_row(int lane, int i) {
  return lane / 4 + (i & 2 ? 8 : 0);
}
__device__ __forceinline__ int fragment_column(int lane, int block, int i) {
  return block * 8 + lane % 4 * 2 + (i & 1);
}

// Sums over the four lanes that hold one row of an accumulator.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

}  // namespace g2::kernels
