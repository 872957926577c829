// z = x w^T on Hopper with softcap, exp and row sums as its epilogue, so that logits are never
// stored and keep their f32 accuracy.
//
// A cluster of two blocks owns tiles of 256 rows x 256 columns, 128 rows a block; each block loads
// half of the tile's columns of w for both. A producer warp feeds a ring of k-blocks by TMA, two
// consumer warpgroups hold 64 x 256 sums each. Blocks are persistent; the tiles of one stretch of
// columns are neighbours in time, so w passes through L2 once and x stays there.
#include "kernels/cluster.cuh"
#include "kernels/fragment.cuh"
#include "kernels/lm_head_loss.h"
#include "kernels/tensor_map.h"
#include "kernels/wgmma.cuh"

namespace g2::kernels {
namespace {

constexpr int kClusterBlocks = 2;
constexpr int kConsumers = 2;
constexpr int kThreads = (1 + kConsumers) * kWarpgroupThreads;
constexpr int kBlockRows = kFusedRows / kClusterBlocks;
constexpr int kWarpgroupRows = kBlockRows / kConsumers;
constexpr int kColumns = kFusedColumns;
constexpr int kDepth = kPanelColumns;  // of a k-block
constexpr int kStages = 4;
constexpr int kWarps = kWarpgroupThreads / 32;
constexpr int kWarpRows = 16;  // rows of a consumer warp's accumulators
// 40 + 2 * 232 registers for each of 128 threads.
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = 232;
constexpr float kLog2E = 1.4426950408889634f;

constexpr int kXBytes = kBlockRows * kPanelRowBytes;
constexpr int kWBytes = kColumns * kPanelRowBytes;
constexpr int kWShareBytes = kWBytes / kClusterBlocks;
constexpr int kPanelBytes = kWarpRows * kPanelRowBytes;  // of E, 64 columns of a warp's rows

struct alignas(1024) Shared {
  unsigned char x[kStages][kXBytes];
  unsigned char w[kStages][kWBytes];
  unsigned char e[kConsumers][kWarps][2][kPanelBytes];
  Ring<kStages> ring;
};
static_assert(sizeof(Shared) <= 227 * 1024);

struct Maps {
  CUtensorMap x, w, e;
};

struct Args {
  FusedLogits p;
  int row_tiles;  // tiles of a stretch of columns
  int tiles;
  int k_blocks;
};

struct Tile {
  int row;     // first row of the block's half
  int column;  // first column
  int index;   // of the stretch of columns
};

__device__ __forceinline__ Tile tile_at(const Args& args, int t, int rank) {
  const int column_tile = t / args.row_tiles;
  const int row_tile = t - column_tile * args.row_tiles;
  return {row_tile * kFusedRows + rank * kBlockRows, column_tile * kColumns, column_tile};
}

__device__ void produce(const Maps& maps, const Args& args, Shared& shared) {
  const int rank = cluster_rank();
  const std::uint64_t keep_x = l2_policy<Keep::kLastOut>();
  const std::uint64_t keep_w = l2_policy<Keep::kNormal>();
  constexpr std::uint16_t kBothBlocks = (1 << kClusterBlocks) - 1;
  RingPosition<kStages> at;
  const int clusters = static_cast<int>(gridDim.x) / kClusterBlocks;
  for (int t = static_cast<int>(blockIdx.x) / kClusterBlocks; t < args.tiles; t += clusters) {
    const Tile tile = tile_at(args, t, rank);
    for (int k = 0; k < args.k_blocks; ++k) {
      Barrier& full = shared.ring.full[at.stage];
      shared.ring.empty[at.stage].wait(at.parity ^ 1);
      full.arrive_and_expect(kXBytes + kWBytes);
      tma_load_box(shared.x[at.stage], maps.x, full, k * kDepth, tile.row, keep_x);
      tma_multicast_box(shared.w[at.stage] + rank * kWShareBytes,
                        maps.w,
                        full,
                        k * kDepth,
                        tile.column + rank * (kColumns / kClusterBlocks),
                        kBothBlocks,
                        keep_w);
      at.advance();
    }
  }
}

// What a lane knows of its rows of a tile, row and row + 8.
struct LaneRows {
  int row;
  int target[2];  // the target's column in the tile; elsewhere outside [0, kColumns)
  int columns;    // columns of the tile that exist
};

struct LaneSums {
  float others[2];
  float finite;  // NaN as soon as a logit is not finite
  float best[2];
  int best_id[2];
};

// The cap as multipliers: t = tanh(z inverse_cap), e = 2^(t cap_log2 - cap_log2).
struct Cap {
  float inverse_cap;
  float cap_log2;
};

// One logit to its E. kMasked: the target, or columns past the vocabulary, may be in the tile.
template <bool kMasked>
__device__ __forceinline__ float term(
    float z, int i, int column, const LaneRows& rows, const Cap& cap, LaneSums& sums) {
  sums.finite = fmaf(z, 0.f, sums.finite);
  const float t = tanh_approx(z * cap.inverse_cap);
  float e = exp2_approx(fmaf(t, cap.cap_log2, -cap.cap_log2));
  if constexpr (kMasked) {
    if (column == rows.target[i / 2 % 2] || column >= rows.columns) e = 0;
  }
  sums.others[i / 2 % 2] += e;
  return fmaf(-t * e, t, e);
}

template <bool kMasked>
__device__ __forceinline__ void note_largest(
    float z, int i, int column, const LaneRows& rows, LaneSums& sums) {
  if (kMasked && column >= rows.columns) return;
  if (!(z > sums.best[i / 2 % 2])) return;
  sums.best[i / 2 % 2] = z;
  sums.best_id[i / 2 % 2] = column;
}

// The epilogue of a warp's 16 x 256 logits. E leaves by panels of 16 x 64 through two buffers.
template <bool kGrad, bool kTop1, bool kMasked>
__device__ __forceinline__ void epilogue(const float (&z)[kColumns / 2],
                                         const CUtensorMap& e_map,
                                         const Tile& tile,
                                         const LaneRows& rows,
                                         const Cap& cap,
                                         unsigned char (&panels)[2][kPanelBytes],
                                         std::uint64_t keep_e,
                                         LaneSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int matrix_row = lane % 16;
  const std::uint32_t panel_row = shared_address(panels) + matrix_row * kPanelRowBytes;
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {
    if constexpr (kGrad) {
      if (lane == 0) tma_store_wait_read<1>();
      __syncwarp();
    }
#pragma unroll
    for (int block = 0; block < 8; block += 2) {
      float v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column = fragment_column(lane, panel * 8 + block + i / 4, i);
        const float logit = z[(panel * 8 + block) * 4 + i];
        if constexpr (kTop1) note_largest<kMasked>(logit, i, column, rows, sums);
        v[i] = term<kMasked>(logit, i, column, rows, cap, sums);
      }
      if constexpr (kGrad) {
        const std::uint32_t packed[4] = {pack_bf16(v[0], v[1]),
                                         pack_bf16(v[2], v[3]),
                                         pack_bf16(v[4], v[5]),
                                         pack_bf16(v[6], v[7])};
        const int chunk = (block + lane / 16) ^ (matrix_row % 8);  // the 128-byte swizzle
        store_matrices(panel_row + panel % 2 * kPanelBytes + chunk * 16, packed);
      }
    }
    if constexpr (kGrad) {
      copy_engine_fence();
      __syncwarp();
      if (lane == 0) {
        tma_store_box(
            panels[panel % 2], e_map, tile.column + panel * kPanelColumns, rows.row, keep_e);
      }
    }
  }
}

__device__ __forceinline__ void keep_target_logits(const float (&z)[kColumns / 2],
                                                   const LaneRows& rows,
                                                   float* z_target) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    if (fragment_column(lane, i / 4, i) == rows.target[i / 2 % 2]) {
      z_target[rows.row + i / 2 % 2 * 8] = z[i];
    }
  }
}

// Over the four lanes of each row, then to memory.
template <bool kTop1>
__device__ __forceinline__ void store_sums(const Args& args,
                                           const Tile& tile,
                                           const LaneRows& rows,
                                           LaneSums& sums) {
  const FusedPartials& out = args.p.partials;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (!(sums.finite == 0)) atomicOr(args.p.flags, kLossNonFiniteLogit);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int64_t at = tile.index * args.p.padded + rows.row + 8 * r;
    const float others = quad_sum(sums.others[r]);
    if (lane % 4 == 0) out.others[at] = others;
    if constexpr (kTop1) {
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float other = __shfl_xor_sync(~0u, sums.best[r], lanes);
        const int other_id = __shfl_xor_sync(~0u, sums.best_id[r], lanes);
        const bool better =
            other > sums.best[r] || (other == sums.best[r] && other_id < sums.best_id[r]);
        if (better) {
          sums.best[r] = other;
          sums.best_id[r] = other_id;
        }
      }
      if (lane % 4 == 0) {
        out.best[at] = sums.best[r];
        out.best_id[at] = tile.column + sums.best_id[r];
      }
    }
  }
}

template <bool kGrad, bool kTop1>
__device__ void consume(const Maps& maps, const Args& args, Shared& shared) {
  const FusedLogits& p = args.p;
  const int rank = cluster_rank();
  const int consumer = warpgroup_index() - 1;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const MatrixDescriptor x = along_columns(shared.x) + consumer * kWarpgroupRows * kPanelRowBytes;
  const MatrixDescriptor w = along_columns(shared.w);
  const std::uint64_t keep_e = l2_policy<Keep::kFirstOut>();
  const Cap cap{1 / p.softcap, p.softcap * kLog2E};
  // A stage is free when both consumers of both blocks have read it: the first threads of each
  // consumer tell one block each.
  const bool tells = thread < kClusterBlocks;
  const std::uint32_t empty = tells ? remote_address(shared.ring.empty[0], thread) : 0;
  const auto release = [&](int stage) {
    if (tells) arrive_remote(empty + stage * static_cast<int>(sizeof(Barrier)));
  };
  RingPosition<kStages> at;
  float z[kColumns / 2];
  const int clusters = static_cast<int>(gridDim.x) / kClusterBlocks;
#pragma unroll 1
  for (int t = static_cast<int>(blockIdx.x) / kClusterBlocks; t < args.tiles; t += clusters) {
    const Tile tile = tile_at(args, t, rank);
    int previous = 0;
#pragma unroll 1
    for (int k = 0; k < args.k_blocks; ++k) {
      shared.ring.full[at.stage].wait(at.parity);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kDepth / 16; ++step) {
        wgmma(z,
              x + (at.stage * kXBytes + column_step<kBlockRows>(step)),
              w + (at.stage * kWBytes + column_step<kColumns>(step)),
              k != 0 || step != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (k > 0) release(previous);
      previous = at.stage;
      at.advance();
    }
    wgmma_wait<0>();
    wgmma_arrived(z);
    release(previous);

    LaneRows rows;
    rows.row = tile.row + consumer * kWarpgroupRows + warp * kWarpRows;
    rows.columns = static_cast<int>(min(std::int64_t{kColumns}, p.vocab - tile.column));
    bool has_target = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.target[r] = p.chunk_targets[rows.row + lane / 4 + 8 * r] - tile.column;
      has_target |= rows.target[r] >= 0 && rows.target[r] < rows.columns;
    }
    LaneSums sums = {{0, 0}, 0, {-INFINITY, -INFINITY}, {0, 0}};
    LaneRows own = rows;
    own.row += lane / 4;
    unsigned char(&panels)[2][kPanelBytes] = shared.e[consumer][warp];
    if (__any_sync(~0u, has_target) || rows.columns < kColumns) {
      keep_target_logits(z, own, p.partials.z_target);
      epilogue<kGrad, kTop1, true>(z, maps.e, tile, rows, cap, panels, keep_e, sums);
    } else {
      epilogue<kGrad, kTop1, false>(z, maps.e, tile, rows, cap, panels, keep_e, sums);
    }
    store_sums<kTop1>(args, tile, own, sums);
  }
  if (kGrad && lane == 0) tma_store_wait();
}

template <bool kGrad, bool kTop1>
__global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    lm_head_fused_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Args args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    shared.ring.init(1, kConsumers * kClusterBlocks);
    barrier_init_fence();
  }
  __syncthreads();
  cluster_sync();
  if (warpgroup_index() == 0) {
    release_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(maps, args, shared);
  } else {
    claim_registers<kConsumerRegisters>();
    consume<kGrad, kTop1>(maps, args, shared);
  }
  __syncwarp();
  cluster_sync();  // no block leaves while the other may still write to it
}

template <bool kGrad, bool kTop1>
cudaError_t launch(const Maps& maps, const Args& args, cudaStream_t stream) {
  const auto kernel = lm_head_fused_kernel<kGrad, kTop1>;
  constexpr int kBytes = sizeof(Shared);
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = kClusterBlocks;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  int clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (error != cudaSuccess) return error;
  clusters = clusters < args.tiles ? clusters : args.tiles;
  config.gridDim = static_cast<unsigned>(clusters * kClusterBlocks);
  return cudaLaunchKernelEx(&config, kernel, maps, args);
}

cudaError_t encode_maps(const FusedLogits& p, Maps* maps) {
  cudaError_t error =
      encode_tensor_map(Matrix{p.x, p.padded, p.hidden, p.hidden}, kBlockRows, &maps->x);
  if (error != cudaSuccess) return error;
  error = encode_tensor_map(
      Matrix{p.w, p.vocab, p.hidden, p.hidden}, kColumns / kClusterBlocks, &maps->w);
  if (error != cudaSuccess || p.e == nullptr) return error;
  return encode_tensor_map(Matrix{p.e, p.padded, p.vocab, p.e_row_elements}, kWarpRows, &maps->e);
}

}  // namespace

bool lm_head_fused_covers(int hidden, float softcap) {
  return hidden >= 8 && hidden % 8 == 0 && softcap > 0 && softcap <= kLargestOffsetCap;
}

cudaError_t lm_head_fused(const FusedLogits& p, cudaStream_t stream) {
  if (!lm_head_fused_covers(p.hidden, p.softcap)) return cudaErrorNotSupported;
  const std::int64_t row_tiles = p.padded / kFusedRows;
  const std::int64_t tiles = (p.vocab + kColumns - 1) / kColumns * row_tiles;
  constexpr std::int64_t kMaxInt = (std::int64_t{1} << 31) - 1;
  if (p.padded < 0 || p.padded % kFusedRows != 0 || p.vocab < 1 || p.vocab > kMaxInt - kColumns ||
      tiles > kMaxInt / 2) {
    return cudaErrorInvalidValue;
  }
  if (p.padded == 0) return cudaSuccess;
  Maps maps = {};
  const cudaError_t error = encode_maps(p, &maps);
  if (error != cudaSuccess) return error;
  const Args args{
      p, static_cast<int>(row_tiles), static_cast<int>(tiles), (p.hidden + kDepth - 1) / kDepth};
  const bool top1 = p.partials.best != nullptr;
  if (p.e != nullptr) {
    return top1 ? launch<true, true>(maps, args, stream) : launch<true, false>(maps, args, stream);
  }
  return top1 ? launch<false, true>(maps, args, stream) : launch<false, false>(maps, args, stream);
}

}  // namespace g2::kernels
