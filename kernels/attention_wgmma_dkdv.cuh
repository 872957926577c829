// What the two dK/dV kernels for Hopper share: the block's place, its shared memory and its
// producer.
#pragma once

#include "kernels/attention_wgmma.cuh"

namespace g2::kernels::detail {

constexpr int kDkdvQueries = 64;  // rows of a query tile

struct DkdvArgs {
  AttentionBackward<__nv_bfloat16> p;
  QkvLayout layout;
  ScoreScale scale;
};

// K and V of the block, and rings of Q and dO tiles with the lse and delta of their rows.
template <int kHeadDim, int kKeys, int kRingStages>
struct alignas(1024) DkdvTiles {
  static constexpr int kStages = kRingStages;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  static constexpr int kQueryBytes = kDkdvQueries * kHeadDim * 2;
  unsigned char k[kKeyBytes];
  unsigned char v[kKeyBytes];
  unsigned char q[kStages][kQueryBytes];
  unsigned char grad_o[kStages][kQueryBytes];
  float lse[kStages][kDkdvQueries];
  float delta[kStages][kDkdvQueries];
  Barrier keys_full;
  Ring<kStages> q_ring;
  Ring<kStages> grad_o_ring;

  __device__ void init_barriers() {
    if (threadIdx.x == 0) {
      keys_full.init(1);
      // Full: the lane that starts the TMA copy, and the 32 that copy lse or delta.
      q_ring.init(1 + 32, kConsumers);
      grad_o_ring.init(1 + 32, kConsumers);
      barrier_init_fence();
    }
    __syncthreads();
  }
};

// The block's keys [key_first, key_last] and its steps: the query tiles from `query_first` to the
// one with `query_last`, once for each query head of the group.
struct DkdvBlock {
  int kv_head;
  int group;
  int key_first;
  int key_last;
  int query_first;
  int query_last;
  int steps;

  // First query of the tile after the one at `query0`.
  __device__ int next(int query0) const {
    const int following = query0 + kDkdvQueries;
    return following > query_last ? query_first : following;
  }
};

template <int kKeys>
__device__ DkdvBlock this_dkdv_block(const AttentionBackward<__nv_bfloat16>& p) {
  const AttentionShape& s = p.shape;
  const BlockPlace place = place_longest_first(s.kv_heads, Longest::kFirstTile);
  DkdvBlock b;
  b.kv_head =
      blockIdx.x % s.kv_heads;  // all heads of the first keys, which most queries see, first
  b.group = s.q_heads / s.kv_heads;
  b.key_first = place.tile * kKeys;
  b.key_last = min(b.key_first + kKeys, static_cast<int>(s.tokens)) - 1;
  b.query_first = b.key_first / kDkdvQueries * kDkdvQueries;
  b.query_last = p.hi[b.key_last];
  b.steps = b.group * ((b.query_last - b.query_first) / kDkdvQueries + 1);
  return b;
}

// A lane's keys, key and key + 8, and the last queries that see them; and the warpgroup's extremes.
struct DkdvKeys {
  int key;
  int hi[2];
  int warpgroup_last;
  int warpgroup_hi;  // of its first key, the least

  __device__ bool visible(int query, int row) const {
    return key + 8 * row <= query && query <= hi[row];
  }
  __device__ bool need_mask(int query0) const {
    return query0 < warpgroup_last || query0 + kDkdvQueries - 1 > warpgroup_hi;
  }
};

__device__ inline DkdvKeys keys_of_lane(const AttentionBackward<__nv_bfloat16>& p,
                                        const DkdvBlock& block,
                                        int warpgroup_row) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const int first = block.key_first + warpgroup_row;
  DkdvKeys keys;
  keys.key = first + thread / 32 * 16 + thread % 32 / 4;
  keys.hi[0] = p.hi[min(keys.key, block.key_last)];
  keys.hi[1] = p.hi[min(keys.key + 8, block.key_last)];
  keys.warpgroup_last = first + kWarpgroupRows - 1;
  keys.warpgroup_hi = p.hi[min(first, block.key_last)];
  return keys;
}

__device__ inline __nv_bfloat16* gradient_rows(const DkdvArgs& args,
                                               const DkdvBlock& block,
                                               const DkdvKeys& keys,
                                               std::int64_t column) {
  return args.p.grad_qkv + keys.key * args.layout.row + column +
         block.kv_head * args.p.shape.head_dim;
}

// Run by one warp: lane 0 starts the TMA copies, and every lane copies its share of lse and delta,
// whose rows TMA could read only if N were a multiple of 4.
template <typename Tiles>
__device__ void produce_dkdv(const AttentionMaps& maps,
                             const AttentionBackward<__nv_bfloat16>& p,
                             const DkdvBlock& block,
                             Tiles& tiles) {
  const int lane = threadIdx.x;
  const int tokens = static_cast<int>(p.shape.tokens);
  if (lane == 0) {
    tiles.keys_full.arrive_and_expect(2 * Tiles::kKeyBytes);
    tma_load(tiles.k, maps.k, tiles.keys_full, block.key_first, block.kv_head);
    tma_load(tiles.v, maps.v, tiles.keys_full, block.key_first, block.kv_head);
  }
  const auto copy_row_values = [&](float* to, const float* from, int query0, Barrier& full) {
#pragma unroll
    for (int i = lane; i < kDkdvQueries; i += 32) {
      const bool exists = query0 + i < tokens;
      copy_float_async(to + i, from + (exists ? query0 + i : 0), exists);
    }
    full.arrive_after_copies();
  };
  RingPosition<Tiles::kStages> at;
  for (int head = block.kv_head * block.group; head < (block.kv_head + 1) * block.group; ++head) {
    const float* lse = p.lse + head * p.shape.tokens;
    const float* delta = p.delta + head * p.shape.tokens;
    for (int query0 = block.query_first; query0 <= block.query_last; query0 += kDkdvQueries) {
      Barrier& q_full = tiles.q_ring.full[at.stage];
      tiles.q_ring.empty[at.stage].wait(at.parity ^ 1);
      if (lane == 0) {
        q_full.arrive_and_expect(Tiles::kQueryBytes);
        tma_load(tiles.q[at.stage], maps.q, q_full, query0, head);
      }
      copy_row_values(tiles.lse[at.stage], lse, query0, q_full);
      Barrier& grad_o_full = tiles.grad_o_ring.full[at.stage];
      tiles.grad_o_ring.empty[at.stage].wait(at.parity ^ 1);
      if (lane == 0) {
        grad_o_full.arrive_and_expect(Tiles::kQueryBytes);
        tma_load(tiles.grad_o[at.stage], maps.grad_o, grad_o_full, query0, head);
      }
      copy_row_values(tiles.delta[at.stage], delta, query0, grad_o_full);
      at.advance();
    }
  }
}

template <int kKeys, typename Kernel>
cudaError_t launch_dkdv(Kernel kernel,
                        int shared_bytes,
                        const AttentionBackward<__nv_bfloat16>& p,
                        cudaStream_t stream) {
  AttentionMaps maps = {};
  cudaError_t error = encode_qkv_maps(p.shape, p.qkv, kDkdvQueries, kKeys, &maps);
  if (error == cudaSuccess) error = encode_grad_o_map(p.shape, p.grad_o, kDkdvQueries, &maps);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kKeys) * p.shape.kv_heads;
  const DkdvArgs args{p, qkv_layout(p.shape), score_scale(p.shape)};
  kernel<<<blocks, kWgmmaThreads, shared_bytes, stream>>>(maps, args);
  return cudaGetLastError();
}

// One kernel a head_dim: the accumulators decide how the work is split.
cudaError_t attention_dkdv_wgmma_128(const AttentionBackward<__nv_bfloat16>& p,
                                     cudaStream_t stream);
cudaError_t attention_dkdv_wgmma_256(const AttentionBackward<__nv_bfloat16>& p,
                                     cudaStream_t stream);

}  // namespace g2::kernels::detail
