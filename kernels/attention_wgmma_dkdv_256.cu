// dK and dV on Hopper, head_dim 256. A block owns 64 keys of one kv head and loops over the query
// heads of its group and the query tiles that see its keys. One warpgroup's registers hold one
// 64 x 256 gradient, so the two consumers split the work by gradient:
//   consumer 1:  S^T = K Q^T,   P^T,                    dV += P^T dO
//   consumer 2:  dP^T = V dO^T, dS^T = slope (dP - d),  dK += dS^T Q
// Consumer 1 hands slope = P (1 - t^2) over through shared memory, each thread to the thread with
// the same place in the other warpgroup. Neither P^T nor dS^T ever is a shared-memory operand.
#include "kernels/attention_wgmma_dkdv.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kHeadDim = 256;
constexpr int kKeys = kWarpgroupRows;
using Tiles = DkdvTiles<kHeadDim, kKeys, 2>;

struct alignas(1024) Shared : Tiles {
  float4 slopes[kDkdvQueries / 8][kWarpgroupThreads];
};

// Named barriers of the hand-over.
constexpr int kSlopesEmpty = 1;
constexpr int kSlopesFull = 2;
constexpr int kBothConsumers = kConsumers * kWarpgroupThreads;

// What differs between the consumers in the common loop below.
struct Role {
  MatrixDescriptor keys;      // K or V, rows of the first product
  MatrixDescriptor columns;   // Q or dO, its other operand
  MatrixDescriptor weighted;  // dO or Q, summed with the weights
  Ring<Tiles::kStages>* first_ring;
  Ring<Tiles::kStages>* second_ring;
};

// Runs `make_weights(s, block position, stage)` between the two products of every step. The first
// product of the next step is issued behind the second of this one.
template <typename MakeWeights>
__device__ __forceinline__ void accumulate(float (&gradient)[kHeadDim / 2],
                                           const Role& role,
                                           const DkdvBlock& block,
                                           const MakeWeights& make_weights) {
  float s[kDkdvQueries / 2];
  std::uint32_t weights[kDkdvQueries / 16][4];
  RingPosition<Tiles::kStages> at;
  const auto issue_first = [&] {
    role.first_ring->full[at.stage].wait(at.parity);
    issue_row_products<kHeadDim, kKeys, kDkdvQueries>(
        s, role.keys, role.columns + at.stage * Tiles::kQueryBytes);
  };
  issue_first();
  wgmma_wait<0>();
  wgmma_arrived(s);
  int query0 = block.query_first;
#pragma unroll 1
  for (int step = 1; step <= block.steps; ++step) {
    make_weights(s, query0, at.stage, step == block.steps);
    pack_weights(s, weights);
    role.second_ring->full[at.stage].wait(at.parity);
    issue_weighted_sum(gradient, weights, role.weighted + at.stage * Tiles::kQueryBytes);
    const int used = at.stage;
    at.advance();
    query0 = block.next(query0);
    if (step < block.steps) {
      issue_first();
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_arrived(gradient);
    release(role.first_ring->empty[used]);
    release(role.second_ring->empty[used]);
    wgmma_wait<0>();
    wgmma_arrived(s);
  }
}

__device__ __forceinline__ void make_probabilities(float (&s)[kDkdvQueries / 2],
                                                   const DkdvKeys& keys,
                                                   bool masked,
                                                   ScoreScale scale,
                                                   int query0,
                                                   const float* lse,
                                                   float4 (*slopes)[kWarpgroupThreads]) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const int lane = thread % 32;
#pragma unroll
  for (int block = 0; block < kDkdvQueries / 8; ++block) {
    const float2 row_lse = *reinterpret_cast<const float2*>(lse + fragment_column(lane, block, 0));
    float slope[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float t;
      float p = probability<true>(s[4 * block + i], scale, i & 1 ? row_lse.y : row_lse.x, &t);
      if (masked && !keys.visible(query0 + fragment_column(lane, block, i), i / 2)) p = 0;
      s[4 * block + i] = p;
      slope[i] = times_slope<true>(p, t);
    }
    slopes[block][thread] = make_float4(slope[0], slope[1], slope[2], slope[3]);
  }
}

__device__ __forceinline__ void make_grad_scores(float (&s)[kDkdvQueries / 2],
                                                 const float* delta,
                                                 const float4 (*slopes)[kWarpgroupThreads]) {
  const int thread = threadIdx.x % kWarpgroupThreads;
#pragma unroll
  for (int block = 0; block < kDkdvQueries / 8; ++block) {
    const float2 row_delta =
        *reinterpret_cast<const float2*>(delta + fragment_column(thread % 32, block, 0));
    const float4 slope = slopes[block][thread];
    s[4 * block] = slope.x * (s[4 * block] - row_delta.x);
    s[4 * block + 1] = slope.y * (s[4 * block + 1] - row_delta.y);
    s[4 * block + 2] = slope.z * (s[4 * block + 2] - row_delta.x);
    s[4 * block + 3] = slope.w * (s[4 * block + 3] - row_delta.y);
  }
}

__device__ void consume(const DkdvArgs& args, const DkdvBlock& block, Shared& shared) {
  const bool owns_dv = warpgroup_index() == 1;
  const DkdvKeys keys = keys_of_lane(args.p, block, 0);
  float gradient[kHeadDim / 2];
#pragma unroll
  for (float& x : gradient) x = 0;
  shared.keys_full.wait(0);
  if (owns_dv) {
    const Role role{along_columns(shared.k),
                    along_columns(shared.q),
                    along_rows<kDkdvQueries>(shared.grad_o),
                    &shared.q_ring,
                    &shared.grad_o_ring};
    accumulate(gradient, role, block, [&](auto& s, int query0, int stage, bool) {
      named_barrier_sync<kSlopesEmpty>(kBothConsumers);
      make_probabilities(
          s, keys, keys.need_mask(query0), args.scale, query0, shared.lse[stage], shared.slopes);
      named_barrier_arrive<kSlopesFull>(kBothConsumers);
    });
  } else {
    const Role role{along_columns(shared.v),
                    along_columns(shared.grad_o),
                    along_rows<kDkdvQueries>(shared.q),
                    &shared.grad_o_ring,
                    &shared.q_ring};
    named_barrier_arrive<kSlopesEmpty>(kBothConsumers);
    accumulate(gradient, role, block, [&](auto& s, int, int stage, bool is_last) {
      named_barrier_sync<kSlopesFull>(kBothConsumers);
      make_grad_scores(s, shared.delta[stage], shared.slopes);
      if (!is_last) named_barrier_arrive<kSlopesEmpty>(kBothConsumers);
    });
  }
  const float scale = owns_dv ? 1 : args.p.shape.scale;
  const float factor[2] = {scale, scale};
  store_accumulator(gradient,
                    factor,
                    gradient_rows(args, block, keys, owns_dv ? args.layout.v : args.layout.k),
                    args.layout.row,
                    block.key_last + 1 - keys.key);
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
    if (threadIdx.x < 32) produce_dkdv<Tiles>(maps, args.p, block, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume(args, block, shared);
  }
}

}  // namespace

cudaError_t attention_dkdv_wgmma_256(const AttentionBackward<__nv_bfloat16>& p,
                                     cudaStream_t stream) {
  return launch_dkdv<kKeys>(attention_dkdv_wgmma_kernel, sizeof(Shared), p, stream);
}

}  // namespace g2::kernels::detail
