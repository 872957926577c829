// dK and dV on Hopper, head_dim 128. A block owns 128 keys of one kv head, a consumer warpgroup 64
// of them with both gradients in its registers, and loops over the query heads of the group and the
// query tiles that see its keys. dV += P^T dO and dK += dS^T Q of one step run behind S^T of the
// next.
#include "kernels/attention_wgmma_dkdv.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kHeadDim = 128;
constexpr int kKeys = kConsumers * kWarpgroupRows;
using Shared = DkdvTiles<kHeadDim, kKeys, 3>;

constexpr int kScores = kDkdvQueries / 2;  // registers of a 64 x 64 accumulator
using Weights = std::uint32_t[kDkdvQueries / 16][4];

// s: q . k in, P (1 - t^2) out; P itself leaves packed.
template <bool kMasked>
__device__ __forceinline__ void make_probabilities(float (&s)[kScores],
                                                   Weights& probabilities,
                                                   const DkdvKeys& keys,
                                                   ScoreScale scale,
                                                   int query0,
                                                   const float* lse) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < kDkdvQueries / 8; ++block) {
    const float2 row_lse = *reinterpret_cast<const float2*>(lse + fragment_column(lane, block, 0));
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float t;
      p[i] = probability<true>(s[4 * block + i], scale, i & 1 ? row_lse.y : row_lse.x, &t);
      if (kMasked && !keys.visible(query0 + fragment_column(lane, block, i), i / 2)) p[i] = 0;
      s[4 * block + i] = times_slope<true>(p[i], t);
    }
    probabilities[block / 2][block % 2 * 2] = pack_bf16(p[0], p[1]);
    probabilities[block / 2][block % 2 * 2 + 1] = pack_bf16(p[2], p[3]);
  }
}

__device__ __forceinline__ void make_grad_scores(const float (&slopes)[kScores],
                                                 const float (&grad_p)[kScores],
                                                 Weights& grad_scores,
                                                 const float* delta) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int block = 0; block < kDkdvQueries / 8; ++block) {
    const float2 row_delta =
        *reinterpret_cast<const float2*>(delta + fragment_column(lane, block, 0));
    const int i = 4 * block;
    grad_scores[block / 2][block % 2 * 2] = pack_bf16(
        slopes[i] * (grad_p[i] - row_delta.x), slopes[i + 1] * (grad_p[i + 1] - row_delta.y));
    grad_scores[block / 2][block % 2 * 2 + 1] =
        pack_bf16(slopes[i + 2] * (grad_p[i + 2] - row_delta.x),
                  slopes[i + 3] * (grad_p[i + 3] - row_delta.y));
  }
}

// One consumer warpgroup; everything is inlined, so that the accumulators stay in registers.
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const DkdvArgs& args, const DkdvBlock& block, Shared& shared)
      : args_(args),
        block_(block),
        shared_(shared),
        warpgroup_row_((warpgroup_index() - 1) * kWarpgroupRows),
        keys_(keys_of_lane(args.p, block, warpgroup_row_)) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) grad_k_[i] = grad_v_[i] = 0;
    // In place before the first product, or ptxas serialises them.
    wgmma_arrived(grad_k_);
    wgmma_arrived(grad_v_);
  }

  __device__ __forceinline__ void run() {
    int previous_stage = 0;
    int query0 = block_.query_first;
    shared_.keys_full.wait(0);
#pragma unroll 1
    for (int step = 0; step < block_.steps; ++step) {
      issue_scores();
      wgmma_wait<1>();  // the gradients of the step before: its weights and tiles may go
      wgmma_arrived(grad_v_);
      wgmma_arrived(grad_k_);
      if (step > 0) {
        release(shared_.q_ring.empty[previous_stage]);
        release(shared_.grad_o_ring.empty[previous_stage]);
      }
      issue_grad_p();
      wgmma_wait<1>();
      make_weights(query0);
      wgmma_wait<0>();
      wgmma_arrived(grad_p_);
      issue_weighted_sum(
          grad_v_, probabilities_, along_rows<kDkdvQueries>(shared_.grad_o) + offset());
      make_grad_scores(s_, grad_p_, grad_scores_, shared_.delta[at_.stage]);
      issue_weighted_sum(grad_k_, grad_scores_, along_rows<kDkdvQueries>(shared_.q) + offset());
      previous_stage = at_.stage;
      at_.advance();
      query0 = block_.next(query0);
    }
    wgmma_wait<0>();
    wgmma_arrived(grad_v_);
    wgmma_arrived(grad_k_);
  }

  __device__ __forceinline__ void store() {
    const std::int64_t pitch = args_.layout.row;
    const int existing_rows = block_.key_last + 1 - keys_.key;
    const float one[2] = {1, 1};
    const float scale[2] = {args_.p.shape.scale, args_.p.shape.scale};
    __nv_bfloat16* grad_v = gradient_rows(args_, block_, keys_, args_.layout.v);
    __nv_bfloat16* grad_k = gradient_rows(args_, block_, keys_, args_.layout.k);
    store_accumulator(grad_v_, one, grad_v, pitch, existing_rows);
    store_accumulator(grad_k_, scale, grad_k, pitch, existing_rows);
  }

 private:
  // Of the step's tiles in their rings.
  __device__ __forceinline__ int offset() const {
    return at_.stage * Shared::kQueryBytes;
  }

  __device__ __forceinline__ void issue_scores() {
    shared_.q_ring.full[at_.stage].wait(at_.parity);
    issue_row_products<kHeadDim, kKeys, kDkdvQueries>(
        s_,
        along_columns(shared_.k) + warpgroup_row_ * kPanelRowBytes,
        along_columns(shared_.q) + offset());
  }

  __device__ __forceinline__ void issue_grad_p() {
    shared_.grad_o_ring.full[at_.stage].wait(at_.parity);
    issue_row_products<kHeadDim, kKeys, kDkdvQueries>(
        grad_p_,
        along_columns(shared_.v) + warpgroup_row_ * kPanelRowBytes,
        along_columns(shared_.grad_o) + offset());
  }

  __device__ __forceinline__ void make_weights(int query0) {
    wgmma_arrived(s_);
    const float* lse = shared_.lse[at_.stage];
    if (keys_.need_mask(query0)) {
      make_probabilities<true>(s_, probabilities_, keys_, args_.scale, query0, lse);
    } else {
      make_probabilities<false>(s_, probabilities_, keys_, args_.scale, query0, lse);
    }
  }

  const DkdvArgs& args_;
  const DkdvBlock& block_;
  Shared& shared_;
  const int warpgroup_row_;
  const DkdvKeys keys_;
  RingPosition<Shared::kStages> at_;
  float s_[kScores];
  float grad_p_[kScores];
  Weights probabilities_;
  Weights grad_scores_;
  float grad_k_[kHeadDim / 2];
  float grad_v_[kHeadDim / 2];
};

__global__ void __launch_bounds__(kWgmmaThreads, 1)
    attention_dkdv_wgmma_kernel(const __grid_constant__ AttentionMaps maps,
                                const __grid_constant__ DkdvArgs args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  shared.init_barriers();
  const DkdvBlock block = this_dkdv_block<kKeys>(args.p);
  if (warpgroup_index() == 0) {
    release_registers<kProducerRegisters>();
    if (threadIdx.x < 32) produce_dkdv(maps, args.p, block, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    Consumer consumer(args, block, shared);
    consumer.run();
    consumer.store();
  }
}

}  // namespace

cudaError_t attention_dkdv_wgmma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream) {
  return p.shape.head_dim == 256 ? attention_dkdv_wgmma_256(p, stream)
                                 : attention_dkdv_wgmma_128(p, stream);
}

cudaError_t attention_dkdv_wgmma_128(const AttentionBackward<__nv_bfloat16>& p,
                                     cudaStream_t stream) {
  return launch_dkdv<kKeys>(attention_dkdv_wgmma_kernel, sizeof(Shared), p, stream);
}

}  // namespace g2::kernels::detail
