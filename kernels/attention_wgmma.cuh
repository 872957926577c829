// What the three Hopper attention kernels share. Each block is a producer warpgroup, one warp of
// which feeds shared memory through TMA, and two consumer warpgroups that compute.
#pragma once

#include "kernels/attention_device.cuh"
#include "kernels/tensor_map.h"
#include "kernels/wgmma.cuh"

namespace g2::kernels::detail {

constexpr int kWgmmaThreads = 3 * kWarpgroupThreads;
constexpr int kConsumers = 2;
constexpr int kWarpgroupRows = 64;  // rows of one wgmma

// 24 + 2 * 240 registers for each of 128 threads: the whole file.
constexpr int kProducerRegisters = 24;
constexpr int kConsumerRegisters = 240;

// A consumer warpgroup has done with a tile; its wgmma_wait() comes before. One thread speaks for
// all four warps: a product that has completed was issued by each of them.
__device__ __forceinline__ void release(Barrier& empty) {
  if (threadIdx.x % kWarpgroupThreads == 0) empty.arrive();
}

// d[64 x kRowsB] = a b^T over head_dim: 64 rows of a tile of kRowsA rows against a whole tile.
template <int kHeadDim, int kRowsA, int kRowsB, int kCount>
__device__ __forceinline__ void issue_row_products(float (&d)[kCount],
                                                   MatrixDescriptor a,
                                                   MatrixDescriptor b) {
  static_assert(kCount == kRowsB / 2);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    wgmma(d, a + column_step<kRowsA>(k), b + column_step<kRowsB>(k), k != 0);
  }
  wgmma_commit();
}

// d[64 x head_dim] += weights b: bf16 weights [64 x 16 kSteps] in registers, b a tile.
template <int kSteps, int kCount>
__device__ __forceinline__ void issue_weighted_sum(float (&d)[kCount],
                                                   const std::uint32_t (&weights)[kSteps][4],
                                                   MatrixDescriptor b) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) wgmma<1>(d, weights[k], b + row_step(k), true);
  wgmma_commit();
}

// An accumulator [64 x 16 kSteps] rounded to bf16 as the A operand of issue_weighted_sum().
template <int kSteps>
__device__ __forceinline__ void pack_weights(const float (&s)[8 * kSteps],
                                             std::uint32_t (&weights)[kSteps][4]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[k][i] = pack_bf16(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
    }
  }
}

// Rows row and row + 8 of an accumulator [64 x head_dim], times `factor` of each, to rows of `out`
// that are `pitch` elements apart; `out` points at `row`. Rows that do not exist are skipped.
template <int kCount>
__device__ __forceinline__ void store_accumulator(const float (&d)[kCount],
                                                  const float (&factor)[2],
                                                  __nv_bfloat16* out,
                                                  std::int64_t pitch,
                                                  int existing_rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (8 * r >= existing_rows) return;
#pragma unroll
    for (int block = 0; block < kCount / 4; ++block) {
      const float low = d[4 * block + 2 * r] * factor[r];
      const float high = d[4 * block + 2 * r + 1] * factor[r];
      *reinterpret_cast<std::uint32_t*>(out + 8 * r * pitch + fragment_column(lane, block, 0)) =
          pack_bf16(low, high);
    }
  }
}

// A block's queries [first, last] of one head, and the key tiles they see, walked from `tile_last`
// down to `tile_first`: tiles with the diagonal come first.
struct QueryBlock {
  int head;
  int kv_head;
  int first;
  int last;
  int tile_first;
  int tile_last;
};

template <int kQueries, int kKeys>
__device__ __forceinline__ QueryBlock this_query_block(const AttentionShape& s, const int* lo) {
  const BlockPlace place = place_longest_first(s.q_heads, Longest::kLastTile);
  QueryBlock b;
  b.head = place.head;
  b.kv_head = b.head / (s.q_heads / s.kv_heads);
  b.first = place.tile * kQueries;
  b.last = min(b.first + kQueries, static_cast<int>(s.tokens)) - 1;
  b.tile_first = lo[b.first] / kKeys;
  b.tile_last = b.last / kKeys;
  return b;
}

// Tensor maps of the parts of a fused qkv buffer, and of o or grad_o.
struct AttentionMaps {
  CUtensorMap q, k, v, grad_o;
};

inline cudaError_t encode_qkv_maps(const AttentionShape& s,
                                   const __nv_bfloat16* qkv,
                                   int query_rows,
                                   int key_rows,
                                   AttentionMaps* maps) {
  const QkvLayout layout = qkv_layout(s);
  const HeadMatrix q{qkv, s.tokens, layout.row, s.q_heads, s.head_dim};
  const HeadMatrix k{qkv + layout.k, s.tokens, layout.row, s.kv_heads, s.head_dim};
  const HeadMatrix v{qkv + layout.v, s.tokens, layout.row, s.kv_heads, s.head_dim};
  cudaError_t error = encode_tensor_map(q, query_rows, &maps->q);
  if (error == cudaSuccess) error = encode_tensor_map(k, key_rows, &maps->k);
  if (error == cudaSuccess) error = encode_tensor_map(v, key_rows, &maps->v);
  return error;
}

inline cudaError_t encode_grad_o_map(const AttentionShape& s,
                                     const __nv_bfloat16* grad_o,
                                     int query_rows,
                                     AttentionMaps* maps) {
  const std::int64_t row = std::int64_t{s.q_heads} * s.head_dim;
  return encode_tensor_map(
      {grad_o, s.tokens, row, s.q_heads, s.head_dim}, query_rows, &maps->grad_o);
}

}  // namespace g2::kernels::detail
