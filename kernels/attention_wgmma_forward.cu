// Attention forward on Hopper. A block owns 128 queries of one head, a consumer warpgroup 64 of
// them; tiles of K and V stream through rings of two buffers. The softcap bounds the scores, so
// softmax keeps no maximum and O is never rescaled: nothing touches its registers between two
// products, and O += P V of one tile runs behind the softmax of the next.
#include "kernels/attention_wgmma.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kQueries = kConsumers * kWarpgroupRows;
constexpr int kStages = 2;
template <int kHeadDim>
constexpr int kKeys = kHeadDim == 256 ? 64 : 128;  // as many as registers and shared memory hold

template <int kHeadDim>
struct alignas(1024) Shared {
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
  static constexpr int kKeyBytes = kKeys<kHeadDim> * kHeadDim * 2;
  unsigned char q[kQueryBytes];
  unsigned char k[kStages][kKeyBytes];
  unsigned char v[kStages][kKeyBytes];
  Barrier q_full;
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
};

struct Args {
  AttentionForward<__nv_bfloat16> p;
  ScoreScale scale;
};

// The block's queries [first, last] and its key tiles, walked from `tile_last` down to
// `tile_first`: tiles with the diagonal come first.
struct Block {
  int head;
  int kv_head;
  int first;
  int last;
  int tile_first;
  int tile_last;
};

template <int kHeadDim>
__device__ Block this_block(const AttentionForward<__nv_bfloat16>& p) {
  const AttentionShape& s = p.shape;
  const BlockPlace place = place_longest_first(s.q_heads, Longest::kLastTile);
  Block b;
  b.head = place.head;
  b.kv_head = b.head / (s.q_heads / s.kv_heads);
  b.first = place.tile * kQueries;
  b.last = min(b.first + kQueries, static_cast<int>(s.tokens)) - 1;
  b.tile_first = p.lo[b.first] / kKeys<kHeadDim>;
  b.tile_last = b.last / kKeys<kHeadDim>;
  return b;
}

template <int kHeadDim>
__device__ void produce(const AttentionMaps& maps, const Block& block, Shared<kHeadDim>& shared) {
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  shared.q_full.arrive_and_expect(Shared<kHeadDim>::kQueryBytes);
  tma_load(shared.q, maps.q, shared.q_full, block.first, block.head);
  RingPosition<kStages> at;
  for (int tile = block.tile_last; tile >= block.tile_first; --tile) {
    const int key = tile * kKeys<kHeadDim>;
    shared.k_ring.empty[at.stage].wait(at.parity ^ 1);
    shared.k_ring.full[at.stage].arrive_and_expect(kBytes);
    tma_load(shared.k[at.stage], maps.k, shared.k_ring.full[at.stage], key, block.kv_head);
    shared.v_ring.empty[at.stage].wait(at.parity ^ 1);
    shared.v_ring.full[at.stage].arrive_and_expect(kBytes);
    tma_load(shared.v[at.stage], maps.v, shared.v_ring.full[at.stage], key, block.kv_head);
    at.advance();
  }
}

// Rows of a lane, row and row + 8, and the running sums of their weights.
struct RowState {
  int row;
  int lo[2];
  float total[2];
};

template <bool kMasked, int kCount>
__device__ __forceinline__ void softmax(float (&s)[kCount],
                                        RowState& rows,
                                        ScoreScale scale,
                                        int key0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = tanh_approx(s[i] * scale.inner);
  if constexpr (kMasked) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int key = key0 + fragment_column(lane, i / 4, i);
      const bool below = (i & 2) != 0;
      if (key < rows.lo[below] || key > rows.row + 8 * below) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = exp2_approx(s[i] * scale.outer);
    rows.total[i / 2 % 2] += s[i];
  }
}

template <int kHeadDim>
__device__ void consume(const Args& args, const Block& block, Shared<kHeadDim>& shared) {
  constexpr int kTileKeys = kKeys<kHeadDim>;
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  const AttentionForward<__nv_bfloat16>& p = args.p;
  const int warpgroup_row = (warpgroup_index() - 1) * kWarpgroupRows;
  const int thread = threadIdx.x % kWarpgroupThreads;
  const int lane = thread % 32;
  const int first = block.first + warpgroup_row;  // of the warpgroup; may lie past the last token
  RowState rows;
  rows.row = first + thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.lo[r] = p.lo[min(rows.row + 8 * r, block.last)];
    rows.total[r] = 0;
  }
  const int last_lo = p.lo[min(first + kWarpgroupRows - 1, block.last)];

  const MatrixDescriptor q = along_columns(shared.q) + warpgroup_row * kPanelRowBytes;
  const MatrixDescriptor k = along_columns(shared.k);
  const MatrixDescriptor v = along_rows<kTileKeys>(shared.v);
  RingPosition<kStages> k_at, v_at;
  float o[kHeadDim / 2];
#pragma unroll
  for (float& x : o) x = 0;
  float s[kTileKeys / 2];
  std::uint32_t weights[kTileKeys / 16][4];

  const auto issue_scores = [&] {
    shared.k_ring.full[k_at.stage].wait(k_at.parity);
    issue_row_products<kHeadDim, kQueries, kTileKeys>(s, q, k + k_at.stage * kBytes);
  };
  const auto scores_arrived = [&] {
    wgmma_arrived(s);
    if (thread == 0) shared.k_ring.empty[k_at.stage].arrive();
    k_at.advance();
  };
  const auto issue_output = [&] {
    shared.v_ring.full[v_at.stage].wait(v_at.parity);
    issue_weighted_sum(o, weights, v + v_at.stage * kBytes);
  };
  const auto softmax_of = [&](int tile) {
    const int key0 = tile * kTileKeys;
    if (key0 + kTileKeys - 1 > first || key0 < last_lo) {
      softmax<true>(s, rows, args.scale, key0);
    } else {
      softmax<false>(s, rows, args.scale, key0);
    }
  };

  shared.q_full.wait(0);
  issue_scores();
  wgmma_wait<0>();
  scores_arrived();
  softmax_of(block.tile_last);
  pack_weights(s, weights);
#pragma unroll 1
  for (int tile = block.tile_last - 1; tile >= block.tile_first; --tile) {
    issue_scores();
    issue_output();
    wgmma_wait<1>();
    scores_arrived();
    softmax_of(tile);
    wgmma_wait<0>();
    wgmma_arrived(o);
    if (thread == 0) shared.v_ring.empty[v_at.stage].arrive();
    v_at.advance();
    pack_weights(s, weights);  // not before P V has read the previous ones
  }
  issue_output();
  wgmma_wait<0>();
  wgmma_arrived(o);

  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(rows.total[r]);
    inverse[r] = 1 / total;
    const int row = rows.row + 8 * r;
    if (lane % 4 == 0 && row <= block.last) {
      p.lse[block.head * p.shape.tokens + row] = log2f(total);
    }
  }
  const std::int64_t pitch = std::int64_t{p.shape.q_heads} * kHeadDim;
  __nv_bfloat16* out = p.o + rows.row * pitch + block.head * kHeadDim;
  store_accumulator(o, inverse, out, pitch, block.last + 1 - rows.row);
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    attention_forward_wgmma_kernel(const __grid_constant__ AttentionMaps maps,
                                   const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared<kHeadDim>*>(shared_bytes);
  if (threadIdx.x == 0) {
    shared.q_full.init(1);
    shared.k_ring.init(1, kConsumers);
    shared.v_ring.init(1, kConsumers);
    barrier_init_fence();
  }
  __syncthreads();
  const Block block = this_block<kHeadDim>(args.p);
  if (warpgroup_index() == 0) {
    release_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(maps, block, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(args, block, shared);
  }
}

template <int kHeadDim>
cudaError_t launch(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  const auto kernel = attention_forward_wgmma_kernel<kHeadDim>;
  constexpr int kBytes = sizeof(Shared<kHeadDim>);
  AttentionMaps maps = {};
  cudaError_t error = encode_qkv_maps(p.shape, p.qkv, kQueries, kKeys<kHeadDim>, &maps);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kQueries) * p.shape.q_heads;
  kernel<<<blocks, kWgmmaThreads, kBytes, stream>>>(maps, {p, score_scale(p.shape)});
  return cudaGetLastError();
}

}  // namespace

cudaError_t attention_forward_wgmma(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  return p.shape.head_dim == 256 ? launch<256>(p, stream) : launch<128>(p, stream);
}

}  // namespace g2::kernels::detail
