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

__device__ void consume(const DkdvArgs& args, const DkdvBlock& block, Shared& shared) {
  const int warpgroup_row = (warpgroup_index() - 1) * kWarpgroupRows;
  const int thread = threadIdx.x % kWarpgroupThreads;
  const DkdvKeys keys = keys_of_lane(args.p, block, warpgroup_row);
  const MatrixDescriptor k = along_columns(shared.k) + warpgroup_row * kPanelRowBytes;
  const MatrixDescriptor v = along_columns(shared.v) + warpgroup_row * kPanelRowBytes;
  const MatrixDescriptor q = along_columns(shared.q);
  const MatrixDescriptor grad_o = along_columns(shared.grad_o);
  const MatrixDescriptor q_rows = along_rows<kDkdvQueries>(shared.q);
  const MatrixDescriptor grad_o_rows = along_rows<kDkdvQueries>(shared.grad_o);
  float grad_k[kHeadDim / 2], grad_v[kHeadDim / 2];
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) grad_k[i] = grad_v[i] = 0;
  // Without these two ptxas moves zeros into accumulators beside running products, and serialises
  // them.
  wgmma_arrived(grad_k);
  wgmma_arrived(grad_v);
  float s[kScores], grad_p[kScores];
  Weights probabilities, grad_scores;
  RingPosition<Shared::kStages> at;
  int previous_stage = 0;
  int query0 = block.query_first;

  shared.keys_full.wait(0);
#pragma unroll 1
  for (int step = 0; step < block.steps; ++step) {
    const int offset = at.stage * Shared::kQueryBytes;
    shared.q_ring.full[at.stage].wait(at.parity);
    issue_row_products<kHeadDim, kKeys, kDkdvQueries>(s, k, q + offset);
    wgmma_wait<1>();  // the gradients of the step before: its weights and tiles may go
    wgmma_arrived(grad_v);
    wgmma_arrived(grad_k);
    if (thread == 0 && step > 0) {
      shared.q_ring.empty[previous_stage].arrive();
      shared.grad_o_ring.empty[previous_stage].arrive();
    }
    shared.grad_o_ring.full[at.stage].wait(at.parity);
    issue_row_products<kHeadDim, kKeys, kDkdvQueries>(grad_p, v, grad_o + offset);
    wgmma_wait<1>();
    wgmma_arrived(s);
    const float* lse = shared.lse[at.stage];
    if (keys.need_mask(query0)) {
      make_probabilities<true>(s, probabilities, keys, args.scale, query0, lse);
    } else {
      make_probabilities<false>(s, probabilities, keys, args.scale, query0, lse);
    }
    wgmma_wait<0>();
    wgmma_arrived(grad_p);
    issue_weighted_sum(grad_v, probabilities, grad_o_rows + offset);
    make_grad_scores(s, grad_p, grad_scores, shared.delta[at.stage]);
    issue_weighted_sum(grad_k, grad_scores, q_rows + offset);
    previous_stage = at.stage;
    at.advance();
    query0 = block.next(query0);
  }
  wgmma_wait<0>();
  wgmma_arrived(grad_v);
  wgmma_arrived(grad_k);

  const std::int64_t pitch = args.layout.row;
  const int existing_rows = block.key_last + 1 - keys.key;
  const float one[2] = {1, 1};
  const float scale[2] = {args.p.shape.scale, args.p.shape.scale};
  store_accumulator(
      grad_v, one, gradient_rows(args, block, keys, args.layout.v), pitch, existing_rows);
  store_accumulator(
      grad_k, scale, gradient_rows(args, block, keys, args.layout.k), pitch, existing_rows);
}

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
    consume(args, block, shared);
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
