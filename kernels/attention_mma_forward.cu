// Attention forward on mma.sync (sm_80 and later). A block owns 64 queries of one head, a warp 16
// of them; 64 keys at a time stream through one K and one V buffer. K of the next tile is copied
// while P V is formed, V while the scores are.
#include "kernels/attention_device.cuh"
#include "kernels/mma_sync.cuh"

namespace g2::kernels::detail {
namespace {

constexpr int kThreads = 128;
constexpr int kQueries = 64;
constexpr int kKeys = 64;
constexpr int kScoreBlocks = kKeys / 8;

template <int kHeadDim>
struct Tiles {
  SwizzledTile<kHeadDim> q, k, v;
  static constexpr int kBytes = (kQueries + 2 * kKeys) * kHeadDim * 2;
  __device__ explicit Tiles(std::uint32_t base)
      : q{base}, k{base + kQueries * kHeadDim * 2}, v{base + (kQueries + kKeys) * kHeadDim * 2} {}
};

// What a lane carries of its two rows, fragment_row(lane, 0) and fragment_row(lane, 2).
struct RowState {
  int row[2];
  int lo[2];
  float maximum[2];
  float total[2];
};

__device__ __forceinline__ RowState rows_of_lane(const int* lo, int strip, int last) {
  RowState rows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.row[r] = strip + fragment_row(threadIdx.x % 32, 2 * r);
    rows.lo[r] = lo[min(rows.row[r], last)];
    rows.maximum[r] = -INFINITY;
    rows.total[r] = 0;
  }
  return rows;
}

// Turns q . k into unnormalised weights, packed as the A operand of P V, and adds them to the
// totals. With kFixedMaximum the softcap bounds the scores and no maximum is kept; otherwise
// `rescale` returns the factors of what was summed before.
template <bool kFixedMaximum, bool kMasked>
__device__ __forceinline__ void softmax(float (&s)[kScoreBlocks][4],
                                        std::uint32_t (&p)[kKeys / 16][4],
                                        RowState& rows,
                                        float (&rescale)[2],
                                        ScoreScale scale,
                                        bool capped,
                                        int key0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kScoreBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key0 + fragment_column(lane, n, i);
      const bool visible = !kMasked || (rows.lo[i / 2] <= key && key <= rows.row[i / 2]);
      const float x = kFixedMaximum || capped ? tanh_approx(s[n][i] * scale.inner) : s[n][i];
      s[n][i] = visible ? x * scale.outer : -INFINITY;
    }
  }
  float base[2] = {0, 0};
  if constexpr (!kFixedMaximum) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float above = rows.maximum[r];
#pragma unroll
      for (int n = 0; n < kScoreBlocks; ++n) {
        above = fmaxf(above, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
      }
      above = quad_max(above);
      base[r] = above == -INFINITY ? 0 : above;  // nothing visible yet: inf - inf is NaN
      rescale[r] = exp2_approx(rows.maximum[r] - base[r]);
      rows.maximum[r] = above;
      rows.total[r] *= rescale[r];
    }
  }
#pragma unroll
  for (int n = 0; n < kScoreBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = exp2_approx(s[n][i] - base[i / 2]);
      rows.total[i / 2] += s[n][i];
    }
    p[n / 2][n % 2 * 2] = pack_bf16(s[n][0], s[n][1]);
    p[n / 2][n % 2 * 2 + 1] = pack_bf16(s[n][2], s[n][3]);
  }
}

template <bool kFixedMaximum, int kBlocks>
__device__ __forceinline__ void store_rows(const float (&o)[kBlocks][4],
                                           const RowState& rows,
                                           const AttentionForward<__nv_bfloat16>& p,
                                           int head,
                                           int last) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float total = quad_sum(rows.total[r]);
    if (rows.row[r] > last) continue;
    if (lane % 4 == 0) {
      const float maximum = kFixedMaximum ? 0 : rows.maximum[r];
      p.lse[head * p.shape.tokens + rows.row[r]] = maximum + log2f(total);
    }
    __nv_bfloat16* out = p.o + (rows.row[r] * std::int64_t{p.shape.q_heads} + head) * (kBlocks * 8);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      *reinterpret_cast<std::uint32_t*>(out + fragment_column(lane, n, 0)) =
          pack_bf16(o[n][2 * r] / total, o[n][2 * r + 1] / total);
    }
  }
}

template <int kHeadDim, bool kFixedMaximum>
__global__ void __launch_bounds__(kThreads, 2)
    attention_forward_mma_kernel(AttentionForward<__nv_bfloat16> p,
                                 QkvLayout layout,
                                 ScoreScale scale) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Tiles<kHeadDim> tiles(shared_address(shared));
  const AttentionShape& shape = p.shape;
  const int tokens = static_cast<int>(shape.tokens);
  const BlockPlace place = place_longest_first(shape.q_heads, Longest::kLastTile);
  const int query0 = place.tile * kQueries;
  const int last = min(query0 + kQueries, tokens) - 1;
  const int head = place.head;
  const int kv_head = head / (shape.q_heads / shape.kv_heads);
  const int warp_row = threadIdx.x / 32 * 16;
  const auto copy_rows = [&](SwizzledTile<kHeadDim> to, std::int64_t column, int first) {
    copy_tile_async<kThreads, kKeys>(
        to, p.qkv + first * layout.row + column, layout.row, tokens - first);
    copy_commit();
  };
  const std::int64_t q_column = std::int64_t{head} * kHeadDim;
  const std::int64_t k_column = layout.k + std::int64_t{kv_head} * kHeadDim;
  const std::int64_t v_column = layout.v + std::int64_t{kv_head} * kHeadDim;

  RowState rows = rows_of_lane(p.lo, query0 + warp_row, last);
  const int last_lo = p.lo[last];
  float o[kHeadDim / 8][4] = {};
  int key0 = p.lo[query0] / kKeys * kKeys;
  copy_rows(tiles.q, q_column, query0);
  copy_rows(tiles.k, k_column, key0);
  for (; key0 <= last; key0 += kKeys) {
    copy_wait_and_sync<0>();  // K is there, and every warp has left P V: V may be overwritten
    copy_rows(tiles.v, v_column, key0);
    float s[kScoreBlocks][4];
    multiply_rows(s, tiles.q, warp_row, tiles.k, 0);

    std::uint32_t weights[kKeys / 16][4];
    float rescale[2];
    if (key0 + kKeys - 1 > query0 || key0 < last_lo) {
      softmax<kFixedMaximum, true>(s, weights, rows, rescale, scale, shape.softcap > 0, key0);
    } else {
      softmax<kFixedMaximum, false>(s, weights, rows, rescale, scale, shape.softcap > 0, key0);
    }
    if constexpr (!kFixedMaximum) {
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[n][i] *= rescale[i / 2];
      }
    }

    copy_wait_and_sync<0>();  // V is there, and every warp has left the scores
    if (key0 + kKeys <= last) copy_rows(tiles.k, k_column, key0 + kKeys);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) multiply_columns(o, weights[k], tiles.v, k * 16, 0);
  }

  store_rows<kFixedMaximum>(o, rows, p, head, last);
}

template <int kHeadDim, bool kFixedMaximum>
cudaError_t launch(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  const auto kernel = attention_forward_mma_kernel<kHeadDim, kFixedMaximum>;
  constexpr int kBytes = Tiles<kHeadDim>::kBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kQueries) * p.shape.q_heads;
  kernel<<<blocks, kThreads, kBytes, stream>>>(p, qkv_layout(p.shape), score_scale(p.shape));
  return cudaGetLastError();
}

template <int kHeadDim>
cudaError_t launch(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  return has_fixed_maximum(p.shape) ? launch<kHeadDim, true>(p, stream)
                                    : launch<kHeadDim, false>(p, stream);
}

}  // namespace

cudaError_t attention_forward_mma(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream) {
  return p.shape.head_dim == 256 ? launch<256>(p, stream) : launch<128>(p, stream);
}

}  // namespace g2::kernels::detail
