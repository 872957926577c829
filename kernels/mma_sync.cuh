// Building blocks of portable tensor-core kernels (sm_80 and later): asynchronous copies into
// swizzled shared-memory tiles, ldmatrix, and mma.sync products of bf16 accumulated in f32.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/shared_memory.cuh"

namespace g2::kernels {

// A dense tile of bf16 in shared memory. The 16-byte units of a row are permuted by its number, so
// that eight rows of one column unit, what ldmatrix reads at once, lie in eight different banks.
template <int kColumns>
struct SwizzledTile {
  std::uint32_t base;
  __device__ __forceinline__ std::uint32_t at(int row, int column) const {
    return base + row * (kColumns * 2) + (((column / 8) ^ (row & 7)) * 16) + (column & 7) * 2;
  }
};

// Starts copying kRows rows of kColumns elements; rows from `valid` on become zero.
template <int kThreads, int kRows, int kColumns>
__device__ __forceinline__ void copy_tile_async(SwizzledTile<kColumns> to,
                                                const __nv_bfloat16* from,
                                                std::int64_t pitch,
                                                int valid) {
  constexpr int kUnits = kColumns / 8;
  constexpr int kRowsAtOnce = kThreads / kUnits;
  const int column = threadIdx.x % kUnits * 8;
  int row = threadIdx.x / kUnits;
  const __nv_bfloat16* source = from + row * pitch + column;
#pragma unroll 2  // more would keep more addresses in registers than the accumulators leave
  for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
    const bool exists = row < valid;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.at(row, column)),
                 "l"(exists ? source : from),
                 "r"(exists ? 16 : 0));
    row += kRowsAtOnce;
    source += kRowsAtOnce * pitch;
  }
}

// Starts copying one float a thread of the first kCount; those from `valid` on become zero.
template <int kCount>
__device__ __forceinline__ void copy_floats_async(float* to, const float* from, int valid) {
  const int i = threadIdx.x;
  if (i < kCount) copy_float_async(to + i, from + (i < valid ? i : 0), i < valid);
}

__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;");
}

// Waits until at most kPending of this thread's latest committed groups are in flight, then for
// every other thread to have done so.
template <int kPending>
__device__ __forceinline__ void copy_wait_and_sync() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  __syncthreads();
}

__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c[16 x 8] += a[16 x 16] b[16 x 8]
__device__ __forceinline__ void mma_16x8x16(float (&c)[4],
                                            const std::uint32_t (&a)[4],
                                            std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A operand: rows [row, row + 16), columns [column, column + 16) of a tile.
template <int kColumns>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4],
                                       SwizzledTile<kColumns> tile,
                                       int row,
                                       int column) {
  const int lane = threadIdx.x % 32;
  ldmatrix(a, tile.at(row + lane % 16, column + lane / 16 * 8));
}

// c[16 x 8 kBlocks] = (rows [a_row, +16) of a) (rows [b_row, +8 kBlocks) of b)^T
template <int kColumns, int kBlocks>
__device__ __forceinline__ void multiply_rows(float (&c)[kBlocks][4],
                                              SwizzledTile<kColumns> a,
                                              int a_row,
                                              SwizzledTile<kColumns> b,
                                              int b_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll 4
  for (int column = 0; column < kColumns; column += 16) {
    std::uint32_t x[4];
    load_a(x, a, a_row, column);
#pragma unroll
    for (int n = 0; n < kBlocks; n += 2) {
      std::uint32_t y[4];
      const int row = b_row + n * 8 + lane % 8 + lane / 16 * 8;
      ldmatrix(y, b.at(row, column + lane / 8 % 2 * 8));
      mma_16x8x16(c[n], x, y[0], y[1]);
      mma_16x8x16(c[n + 1], x, y[2], y[3]);
    }
  }
}

// c[16 x 8 kBlocks] += a[16 x 16] (rows [b_row, +16), columns [b_column, +8 kBlocks) of b)
template <int kColumns, int kBlocks>
__device__ __forceinline__ void multiply_columns(float (&c)[kBlocks][4],
                                                 const std::uint32_t (&a)[4],
                                                 SwizzledTile<kColumns> b,
                                                 int b_row,
                                                 int b_column) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kBlocks; n += 2) {
    std::uint32_t y[4];
    ldmatrix_transposed(y, b.at(b_row + lane % 16, b_column + n * 8 + lane / 16 * 8));
    mma_16x8x16(c[n], a, y[0], y[1]);
    mma_16x8x16(c[n + 1], a, y[2], y[3]);
  }
}

}  // namespace g2::kernels
