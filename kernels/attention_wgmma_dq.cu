// dQ on Hopper. A block owns 128 queries of one head, a consumer warpgroup 64 of them, with Q and
// dO resident; tiles of K stream through a ring of two buffers, since S and dQ both read them, and
// tiles of V through a ring of their own. dQ += dS K of one tile runs behind S of the next.
#include "kernels/attention_wgmma.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kQueries = kConsumers * kWarpgroupRows;
constexpr int kKStages = 2;
template <int kHeadDim>
constexpr int kVStages = kHeadDim == 256 ? 1 : 2;
constexpr int kKeys = 64;  // 128 would take registers that dQ needs to stay in flight

template <int kHeadDim>
struct alignas(1024) Shared {
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  unsigned char q[kQueryBytes];
  unsigned char grad_o[kQueryBytes];
  unsigned char k[kKStages][kKeyBytes];
  unsigned char v[kVStages<kHeadDim>][kKeyBytes];
  Barrier queries_full;
  Ring<kKStages> k_ring;
  Ring<kVStages<kHeadDim>> v_ring;
};

struct Args {
  AttentionBackward<__nv_bfloat16> p;
  QkvLayout layout;
  ScoreScale scale;
};

// The block's queries [first, last] and its key tiles, walked from `tile_last` down to
// `tile_first`.
struct Block {
  int head;
  int kv_head;
  int first;
  int last;
  int tile_first;
  int tile_last;
};

template <int kHeadDim>
__device__ Block this_block(const AttentionBackward<__nv_bfloat16>& p) {
  const AttentionShape& s = p.shape;
  const BlockPlace place = place_longest_first(s.q_heads, Longest::kLastTile);
  Block b;
  b.head = place.head;
  b.kv_head = b.head / (s.q_heads / s.kv_heads);
  b.first = place.tile * kQueries;
  b.last = min(b.first + kQueries, static_cast<int>(s.tokens)) - 1;
  b.tile_first = p.lo[b.first] / kKeys;
  b.tile_last = b.last / kKeys;
  return b;
}

template <int kHeadDim>
__device__ void produce(const AttentionMaps& maps, const Block& block, Shared<kHeadDim>& shared) {
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  shared.queries_full.arrive_and_expect(2 * Shared<kHeadDim>::kQueryBytes);
  tma_load(shared.q, maps.q, shared.queries_full, block.first, block.head);
  tma_load(shared.grad_o, maps.grad_o, shared.queries_full, block.first, block.head);
  RingPosition<kKStages> k_at;
  RingPosition<kVStages<kHeadDim>> v_at;
  for (int tile = block.tile_last; tile >= block.tile_first; --tile) {
    const int key = tile * kKeys;
    Barrier& k_full = shared.k_ring.full[k_at.stage];
    shared.k_ring.empty[k_at.stage].wait(k_at.parity ^ 1);
    k_full.arrive_and_expect(kBytes);
    tma_load(shared.k[k_at.stage], maps.k, k_full, key, block.kv_head);
    k_at.advance();
    Barrier& v_full = shared.v_ring.full[v_at.stage];
    shared.v_ring.empty[v_at.stage].wait(v_at.parity ^ 1);
    v_full.arrive_and_expect(kBytes);
    tma_load(shared.v[v_at.stage], maps.v, v_full, key, block.kv_head);
    v_at.advance();
  }
}

// What a lane knows of its rows, row and row + 8.
struct RowState {
  int row;
  int lo[2];
  float lse[2];
  float delta[2];
};

// s: q . k in, P (1 - t^2) out.
template <bool kMasked, int kCount>
__device__ __forceinline__ void slopes(float (&s)[kCount],
                                       const RowState& rows,
                                       ScoreScale scale,
                                       int key0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool below = (i & 2) != 0;
    float t;
    float p = probability<true>(s[i], scale, rows.lse[below], &t);
    if constexpr (kMasked) {
      const int key = key0 + fragment_column(lane, i / 4, i);
      if (key < rows.lo[below] || key > rows.row + 8 * below) p = 0;
    }
    s[i] = times_slope<true>(p, t);
  }
}

template <int kHeadDim>
__device__ void consume(const Args& args, const Block& block, Shared<kHeadDim>& shared) {
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  const AttentionBackward<__nv_bfloat16>& p = args.p;
  const int warpgroup_row = (warpgroup_index() - 1) * kWarpgroupRows;
  const int thread = threadIdx.x % kWarpgroupThreads;
  const int first = block.first + warpgroup_row;  // of the warpgroup; may lie past the last token
  RowState rows;
  rows.row = first + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(rows.row + 8 * r, block.last);
    rows.lo[r] = p.lo[row];
    rows.lse[r] = p.lse[block.head * p.shape.tokens + row];
    rows.delta[r] = p.delta[block.head * p.shape.tokens + row];
  }
  const int last_lo = p.lo[min(first + kWarpgroupRows - 1, block.last)];

  const MatrixDescriptor q = along_columns(shared.q) + warpgroup_row * kPanelRowBytes;
  const MatrixDescriptor grad_o = along_columns(shared.grad_o) + warpgroup_row * kPanelRowBytes;
  const MatrixDescriptor k = along_columns(shared.k);
  const MatrixDescriptor k_rows = along_rows<kKeys>(shared.k);
  const MatrixDescriptor v = along_columns(shared.v);
  RingPosition<kKStages> k_at;
  RingPosition<kVStages<kHeadDim>> v_at;
  float grad_q[kHeadDim / 2];
#pragma unroll
  for (float& x : grad_q) x = 0;
  float s[kKeys / 2], grad_p[kKeys / 2];
  std::uint32_t grad_s[kKeys / 16][4];

  shared.queries_full.wait(0);
#pragma unroll 1
  for (int tile = block.tile_last; tile >= block.tile_first; --tile) {
    shared.k_ring.full[k_at.stage].wait(k_at.parity);
    issue_row_products<kHeadDim, kQueries, kKeys>(s, q, k + k_at.stage * kBytes);
    shared.v_ring.full[v_at.stage].wait(v_at.parity);
    issue_row_products<kHeadDim, kQueries, kKeys>(grad_p, grad_o, v + v_at.stage * kBytes);
    wgmma_wait<1>();  // S is there, and so is dQ of the tile before: its K may go
    wgmma_arrived(s);
    if (thread == 0 && tile != block.tile_last) shared.k_ring.empty[k_at.stage ^ 1].arrive();

    const int key0 = tile * kKeys;
    if (key0 + kKeys - 1 > first || key0 < last_lo) {
      slopes<true>(s, rows, args.scale, key0);
    } else {
      slopes<false>(s, rows, args.scale, key0);
    }
    wgmma_wait<0>();
    wgmma_arrived(grad_p);
    wgmma_arrived(grad_q);
    if (thread == 0) shared.v_ring.empty[v_at.stage].arrive();
    v_at.advance();
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) s[i] *= grad_p[i] - rows.delta[i / 2 % 2];
    pack_weights(s, grad_s);
    issue_weighted_sum(grad_q, grad_s, k_rows + k_at.stage * kBytes);
    k_at.advance();
  }
  wgmma_wait<0>();
  wgmma_arrived(grad_q);

  const float factor[2] = {p.shape.scale, p.shape.scale};
  __nv_bfloat16* out = p.grad_qkv + rows.row * args.layout.row + block.head * kHeadDim;
  store_accumulator(grad_q, factor, out, args.layout.row, block.last + 1 - rows.row);
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    attention_dq_wgmma_kernel(const __grid_constant__ AttentionMaps maps,
                              const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared<kHeadDim>*>(shared_bytes);
  if (threadIdx.x == 0) {
    shared.queries_full.init(1);
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
cudaError_t launch(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream) {
  const auto kernel = attention_dq_wgmma_kernel<kHeadDim>;
  constexpr int kBytes = sizeof(Shared<kHeadDim>);
  AttentionMaps maps = {};
  cudaError_t error = encode_qkv_maps(p.shape, p.qkv, kQueries, kKeys, &maps);
  if (error == cudaSuccess) error = encode_grad_o_map(p.shape, p.grad_o, kQueries, &maps);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kQueries) * p.shape.q_heads;
  const Args args{p, qkv_layout(p.shape), score_scale(p.shape)};
  kernel<<<blocks, kWgmmaThreads, kBytes, stream>>>(maps, args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t attention_dq_wgmma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream) {
  return p.shape.head_dim == 256 ? launch<256>(p, stream) : launch<128>(p, stream);
}

}  // namespace g2::kernels::detail
