// dQ on Hopper. A block owns 128 queries of one head, a consumer warpgroup 64 of them, with Q and
// dO resident; tiles of K stream through a ring of two buffers, since S and dQ both read them, and
// tiles of V through a ring of their own. dQ += dS K of one tile runs behind S of the next.
#include "kernels/attention_wgmma.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kQueries = kConsumers * kWarpgroupRows;
template <int kHeadDim>
constexpr int kKStages = kHeadDim == 256 ? 2 : 3;
template <int kHeadDim>
constexpr int kVStages = kHeadDim == 256 ? 1 : 2;
// S of the next tile goes before dQ of this one, which then runs behind the softmax too (524 -> 613
// TFLOP/s on an H200); 256 columns of dQ leave no registers for dS to wait in.
template <int kHeadDim>
constexpr bool kScoresFirst = kHeadDim == 128;
constexpr int kKeys = 64;  // 128 would take registers that dQ needs to stay in flight

template <int kHeadDim>
struct alignas(1024) Shared {
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
  unsigned char q[kQueryBytes];
  unsigned char grad_o[kQueryBytes];
  unsigned char k[kKStages<kHeadDim>][kKeyBytes];
  unsigned char v[kVStages<kHeadDim>][kKeyBytes];
  Barrier queries_full;
  Ring<kKStages<kHeadDim>> k_ring;
  Ring<kVStages<kHeadDim>> v_ring;
};

struct Args {
  AttentionBackward<__nv_bfloat16> p;
  QkvLayout layout;
  ScoreScale scale;
};

template <int kHeadDim>
__device__ void produce(const AttentionMaps& maps,
                        const QueryBlock& block,
                        Shared<kHeadDim>& shared) {
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  shared.queries_full.arrive_and_expect(2 * Shared<kHeadDim>::kQueryBytes);
  tma_load(shared.q, maps.q, shared.queries_full, block.first, block.head);
  tma_load(shared.grad_o, maps.grad_o, shared.queries_full, block.first, block.head);
  RingPosition<kKStages<kHeadDim>> k_at;
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

__device__ __forceinline__ RowState rows_of_lane(const AttentionBackward<__nv_bfloat16>& p,
                                                 const QueryBlock& block,
                                                 int warpgroup_first) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  RowState rows;
  rows.row = warpgroup_first + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(rows.row + 8 * r, block.last);
    rows.lo[r] = p.lo[row];
    rows.lse[r] = p.lse[block.head * p.shape.tokens + row];
    rows.delta[r] = p.delta[block.head * p.shape.tokens + row];
  }
  return rows;
}

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

// One consumer warpgroup; everything is inlined, so that the accumulators stay in registers.
template <int kHeadDim>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Args& args,
                                      const QueryBlock& block,
                                      Shared<kHeadDim>& shared)
      : args_(args),
        block_(block),
        shared_(shared),
        warpgroup_row_((warpgroup_index() - 1) * kWarpgroupRows),
        first_(block.first + warpgroup_row_),
        last_lo_(args.p.lo[min(first_ + kWarpgroupRows - 1, block.last)]),
        rows_(rows_of_lane(args.p, block, first_)) {
#pragma unroll
    for (float& x : grad_q_) x = 0;
    wgmma_arrived(grad_q_);  // in place before the first product, or ptxas serialises them
  }

  __device__ __forceinline__ void run() {
    shared_.queries_full.wait(0);
    if constexpr (kScoresFirst<kHeadDim>) {
      run_scores_first();
    } else {
      run_gradient_first();
    }
    wgmma_wait<0>();
    wgmma_arrived(grad_q_);
  }

  __device__ __forceinline__ void store() {
    const float factor[2] = {args_.p.shape.scale, args_.p.shape.scale};
    const std::int64_t pitch = args_.layout.row;
    __nv_bfloat16* out = args_.p.grad_qkv + rows_.row * pitch + block_.head * kHeadDim;
    store_accumulator(grad_q_, factor, out, pitch, block_.last + 1 - rows_.row);
  }

 private:
  static constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;

  __device__ __forceinline__ void run_scores_first() {
    issue_scores();
    issue_grad_p();
    wgmma_wait<1>();
    make_slopes(block_.tile_last);
    wgmma_wait<0>();
    make_grad_scores();
#pragma unroll 1
    for (int tile = block_.tile_last - 1; tile >= block_.tile_first; --tile) {
      const int previous = k_at_.stage;
      k_at_.advance();
      issue_scores();
      issue_grad_q(previous);
      issue_grad_p();
      wgmma_wait<2>();
      make_slopes(tile);
      wgmma_wait<1>();
      wgmma_arrived(grad_q_);
      release(shared_.k_ring.empty[previous]);
      wgmma_wait<0>();
      make_grad_scores();
    }
    issue_grad_q(k_at_.stage);
  }

  __device__ __forceinline__ void run_gradient_first() {
#pragma unroll 1
    for (int tile = block_.tile_last; tile >= block_.tile_first; --tile) {
      issue_scores();
      issue_grad_p();
      wgmma_wait<1>();  // S, and dQ of the tile before, whose K may go
      if (tile != block_.tile_last) release(shared_.k_ring.empty[k_at_.stage ^ 1]);
      make_slopes(tile);
      wgmma_wait<0>();
      wgmma_arrived(grad_q_);
      make_grad_scores();
      issue_grad_q(k_at_.stage);
      k_at_.advance();
    }
  }

  __device__ __forceinline__ void issue_scores() {
    shared_.k_ring.full[k_at_.stage].wait(k_at_.parity);
    issue_row_products<kHeadDim, kQueries, kKeys>(
        s_,
        along_columns(shared_.q) + warpgroup_row_ * kPanelRowBytes,
        along_columns(shared_.k) + k_at_.stage * kBytes);
  }

  __device__ __forceinline__ void issue_grad_p() {
    shared_.v_ring.full[v_at_.stage].wait(v_at_.parity);
    issue_row_products<kHeadDim, kQueries, kKeys>(
        grad_p_,
        along_columns(shared_.grad_o) + warpgroup_row_ * kPanelRowBytes,
        along_columns(shared_.v) + v_at_.stage * kBytes);
  }

  __device__ __forceinline__ void issue_grad_q(int k_stage) {
    issue_weighted_sum(grad_q_, grad_s_, along_rows<kKeys>(shared_.k) + k_stage * kBytes);
  }

  __device__ __forceinline__ void make_slopes(int tile) {
    wgmma_arrived(s_);
    const int key0 = tile * kKeys;
    if (key0 + kKeys - 1 > first_ || key0 < last_lo_) {
      slopes<true>(s_, rows_, args_.scale, key0);
    } else {
      slopes<false>(s_, rows_, args_.scale, key0);
    }
  }

  __device__ __forceinline__ void make_grad_scores() {
    wgmma_arrived(grad_p_);
    release(shared_.v_ring.empty[v_at_.stage]);
    v_at_.advance();
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) s_[i] *= grad_p_[i] - rows_.delta[i / 2 % 2];
    pack_weights(s_, grad_s_);
  }

  const Args& args_;
  const QueryBlock& block_;
  Shared<kHeadDim>& shared_;
  const int warpgroup_row_;
  const int first_;    // query of the warpgroup; may lie past the last token
  const int last_lo_;  // of its last query
  RowState rows_;
  RingPosition<kKStages<kHeadDim>> k_at_;
  RingPosition<kVStages<kHeadDim>> v_at_;
  float s_[kKeys / 2];
  float grad_p_[kKeys / 2];
  std::uint32_t grad_s_[kKeys / 16][4];
  float grad_q_[kHeadDim / 2];
};

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
  const QueryBlock block = this_query_block<kQueries, kKeys>(args.p.shape, args.p.lo);
  if (warpgroup_index() == 0) {
    release_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(maps, block, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    Consumer<kHeadDim> consumer(args, block, shared);
    consumer.run();
    consumer.store();
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
