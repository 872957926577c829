// Attention forward on Hopper. A block owns 64 queries of one head for each of its consumer
// warpgroups; tiles of K and V stream through rings of buffers. The softcap bounds the scores, so
// softmax keeps no maximum and O is never rescaled: nothing touches its registers between two
// products, and O += P V of one tile runs behind the softmax of the next.
#include "kernels/attention_wgmma.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kKeys = 64;  // of a tile

// With 128 columns softmax takes as long as the products, and a third consumer hides more of it
// (573
// -> 610 TFLOP/s on an H200); 256 columns leave no registers for one.
template <int kHeadDim>
struct Plan;
template <>
struct Plan<256> {
  static constexpr int kConsumers = 2;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kStages = 2;
};
template <>
struct Plan<128> {
  static constexpr int kConsumers = 3;
  static constexpr int kConsumerRegisters = 160;
  static constexpr int kProducerRegisters = 32;
  static constexpr int kStages = 4;
};
template <int kHeadDim>
constexpr int kThreads = (1 + Plan<kHeadDim>::kConsumers) * kWarpgroupThreads;
template <int kHeadDim>
constexpr int kQueries = Plan<kHeadDim>::kConsumers* kWarpgroupRows;

template <int kHeadDim>
struct alignas(1024) Shared {
  static constexpr int kStages = Plan<kHeadDim>::kStages;
  static constexpr int kQueryBytes = kQueries<kHeadDim> * kHeadDim * 2;
  static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
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

template <int kHeadDim>
__device__ void produce(const AttentionMaps& maps,
                        const QueryBlock& block,
                        Shared<kHeadDim>& shared) {
  constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  shared.q_full.arrive_and_expect(Shared<kHeadDim>::kQueryBytes);
  tma_load(shared.q, maps.q, shared.q_full, block.first, block.head);
  RingPosition<Shared<kHeadDim>::kStages> at;
  for (int tile = block.tile_last; tile >= block.tile_first; --tile) {
    const int key = tile * kKeys;
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

__device__ __forceinline__ RowState rows_of_lane(const int* lo,
                                                 const QueryBlock& block,
                                                 int warpgroup_first) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  RowState rows;
  rows.row = warpgroup_first + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.lo[r] = lo[min(rows.row + 8 * r, block.last)];
    rows.total[r] = 0;
  }
  return rows;
}

// s: q . k in, unnormalised weights out.
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
        rows_(rows_of_lane(args.p.lo, block, first_)) {
#pragma unroll
    for (float& x : o_) x = 0;
  }

  __device__ __forceinline__ void run() {
    shared_.q_full.wait(0);
    issue_scores();
    wgmma_wait<0>();
    make_weights(block_.tile_last);
    pack_weights(s_, weights_);
#pragma unroll 1
    for (int tile = block_.tile_last - 1; tile >= block_.tile_first; --tile) {
      issue_scores();
      issue_output();
      wgmma_wait<1>();
      make_weights(tile);
      wgmma_wait<0>();
      wgmma_arrived(o_);
      release(shared_.v_ring.empty[v_at_.stage]);
      v_at_.advance();
      pack_weights(s_, weights_);  // not before P V has read the previous ones
    }
    issue_output();
    wgmma_wait<0>();
    wgmma_arrived(o_);
  }

  __device__ __forceinline__ void store() {
    const AttentionForward<__nv_bfloat16>& p = args_.p;
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float total = quad_sum(rows_.total[r]);
      inverse[r] = 1 / total;
      const int row = rows_.row + 8 * r;
      if (threadIdx.x % 4 == 0 && row <= block_.last) {
        p.lse[block_.head * p.shape.tokens + row] = log2f(total);
      }
    }
    const std::int64_t pitch = std::int64_t{p.shape.q_heads} * kHeadDim;
    __nv_bfloat16* out = p.o + rows_.row * pitch + block_.head * kHeadDim;
    store_accumulator(o_, inverse, out, pitch, block_.last + 1 - rows_.row);
  }

 private:
  static constexpr int kBytes = Shared<kHeadDim>::kKeyBytes;
  using Position = RingPosition<Shared<kHeadDim>::kStages>;

  __device__ __forceinline__ void issue_scores() {
    shared_.k_ring.full[k_at_.stage].wait(k_at_.parity);
    issue_row_products<kHeadDim, kQueries<kHeadDim>, kKeys>(
        s_,
        along_columns(shared_.q) + warpgroup_row_ * kPanelRowBytes,
        along_columns(shared_.k) + k_at_.stage * kBytes);
  }

  __device__ __forceinline__ void issue_output() {
    shared_.v_ring.full[v_at_.stage].wait(v_at_.parity);
    issue_weighted_sum(o_, weights_, along_rows<kKeys>(shared_.v) + v_at_.stage * kBytes);
  }

  __device__ __forceinline__ void make_weights(int tile) {
    wgmma_arrived(s_);
    release(shared_.k_ring.empty[k_at_.stage]);
    k_at_.advance();
    const int key0 = tile * kKeys;
    if (key0 + kKeys - 1 > first_ || key0 < last_lo_) {
      softmax<true>(s_, rows_, args_.scale, key0);
    } else {
      softmax<false>(s_, rows_, args_.scale, key0);
    }
  }

  const Args& args_;
  const QueryBlock& block_;
  Shared<kHeadDim>& shared_;
  const int warpgroup_row_;
  const int first_;    // query of the warpgroup; may lie past the last token
  const int last_lo_;  // of its last query
  RowState rows_;
  Position k_at_;
  Position v_at_;
  float s_[kKeys / 2];
  std::uint32_t weights_[kKeys / 16][4];
  float o_[kHeadDim / 2];
};

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads<kHeadDim>, 1)
    attention_forward_wgmma_kernel(const __grid_constant__ AttentionMaps maps,
                                   const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared<kHeadDim>*>(shared_bytes);
  if (threadIdx.x == 0) {
    shared.q_full.init(1);
    shared.k_ring.init(1, Plan<kHeadDim>::kConsumers);
    shared.v_ring.init(1, Plan<kHeadDim>::kConsumers);
    barrier_init_fence();
  }
  __syncthreads();
  const QueryBlock block = this_query_block<kQueries<kHeadDim>, kKeys>(args.p.shape, args.p.lo);
  if (warpgroup_index() == 0) {
    release_registers<Plan<kHeadDim>::kProducerRegisters>();
    if (threadIdx.x == 0) produce(maps, block, shared);
  } else {
    claim_registers<Plan<kHeadDim>::kConsumerRegisters>();
    Consumer<kHeadDim> consumer(args, block, shared);
    consumer.run();
    consumer.store();
  }
}

template <int kHeadDim>
cudaError_t launch(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  const auto kernel = attention_forward_wgmma_kernel<kHeadDim>;
  constexpr int kBytes = sizeof(Shared<kHeadDim>);
  AttentionMaps maps = {};
  cudaError_t error = encode_qkv_maps(p.shape, p.qkv, kQueries<kHeadDim>, kKeys, &maps);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kQueries<kHeadDim>) * p.shape.q_heads;
  kernel<<<blocks, kThreads<kHeadDim>, kBytes, stream>>>(maps, {p, score_scale(p.shape)});
  return cudaGetLastError();
}

}  // namespace

cudaError_t attention_forward_wgmma(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  return p.shape.head_dim == 256 ? launch<256>(p, stream) : launch<128>(p, stream);
}

}  // namespace g2::kernels::detail
