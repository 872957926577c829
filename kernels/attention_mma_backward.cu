// Attention backward on mma.sync (sm_80 and later), in two kernels: dQ, whose blocks own queries,
// and dK/dV, whose blocks own keys and loop over the query heads of the group. Scores are formed
// twice; in return every gradient has one owner.
#include "kernels/attention_device.cuh"
#include "kernels/mma_sync.cuh"

namespace g2::kernels::detail {
namespace {

using Backward = AttentionBackward<__nv_bfloat16>;

// dQ: 64 queries a block, 16 a warp. dP = dO V^T is formed before S = Q K^T, so that V of the next
// tile is copied behind the rest of this one, and its K behind the next dP.
constexpr int kDqThreads = 128;
constexpr int kDqQueries = 64;
template <int kHeadDim>
constexpr int kDqKeys = kHeadDim == 256 ? 32 : 64;
template <int kHeadDim>
constexpr int kDqBytes = 2 * (kDqQueries + kDqKeys<kHeadDim>)*kHeadDim * 2;

// A lane's two rows, fragment_row(lane, 0) and fragment_row(lane, 2) of its warp's strip.
struct DqRows {
  int row[2];
  int lo[2];
  float lse[2];
  float delta[2];
};

__device__ __forceinline__ DqRows rows_of_lane(const Backward& p, int head, int strip, int last) {
  DqRows rows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.row[r] = strip + fragment_row(threadIdx.x % 32, 2 * r);
    const int existing = min(rows.row[r], last);
    rows.lo[r] = p.lo[existing];
    rows.lse[r] = p.lse[head * p.shape.tokens + existing];
    rows.delta[r] = p.delta[head * p.shape.tokens + existing];
  }
  return rows;
}

template <bool kCapped, bool kMasked, int kBlocks>
__device__ __forceinline__ void make_grad_scores(float (&s)[kBlocks][4],
                                                 const float (&grad_p)[kBlocks][4],
                                                 std::uint32_t (&grad_s)[kBlocks / 2][4],
                                                 ScoreScale scale,
                                                 const DqRows& rows,
                                                 int key0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key0 + fragment_column(lane, n, i);
      const bool visible = !kMasked || (rows.lo[i / 2] <= key && key <= rows.row[i / 2]);
      float t;
      float p = probability<kCapped>(s[n][i], scale, rows.lse[i / 2], &t);
      p = visible ? p : 0;
      s[n][i] = times_slope<kCapped>(p, t) * (grad_p[n][i] - rows.delta[i / 2]);
    }
    grad_s[n / 2][n % 2 * 2] = pack_bf16(s[n][0], s[n][1]);
    grad_s[n / 2][n % 2 * 2 + 1] = pack_bf16(s[n][2], s[n][3]);
  }
}

// Row fragment_row(lane, 2 r) of an accumulator, times scale.
template <int kBlocks>
__device__ __forceinline__ void store_row(const float (&c)[kBlocks][4],
                                          int r,
                                          float scale,
                                          __nv_bfloat16* out) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    *reinterpret_cast<std::uint32_t*>(out + fragment_column(threadIdx.x % 32, n, 0)) =
        pack_bf16(c[n][2 * r] * scale, c[n][2 * r + 1] * scale);
  }
}

template <int kHeadDim, bool kCapped>
__global__ void __launch_bounds__(kDqThreads, 2)
    attention_dq_mma_kernel(Backward p, QkvLayout layout, ScoreScale scale) {
  constexpr int kKeys = kDqKeys<kHeadDim>;
  extern __shared__ __align__(128) unsigned char shared[];
  const SwizzledTile<kHeadDim> q{shared_address(shared)};
  const SwizzledTile<kHeadDim> grad_o{q.base + kDqQueries * kHeadDim * 2};
  const SwizzledTile<kHeadDim> k{grad_o.base + kDqQueries * kHeadDim * 2};
  const SwizzledTile<kHeadDim> v{k.base + kKeys * kHeadDim * 2};
  const AttentionShape& shape = p.shape;
  const int tokens = static_cast<int>(shape.tokens);
  const BlockPlace place = place_longest_first(shape.q_heads, Longest::kLastTile);
  const int query0 = place.tile * kDqQueries;
  const int last = min(query0 + kDqQueries, tokens) - 1;
  const int head = place.head;
  const int kv_head = head / (shape.q_heads / shape.kv_heads);
  const int warp_row = threadIdx.x / 32 * 16;
  const std::int64_t o_row = std::int64_t{shape.q_heads} * kHeadDim;
  const std::int64_t q_column = std::int64_t{head} * kHeadDim;
  const auto copy_keys = [&](SwizzledTile<kHeadDim> to, std::int64_t first_column, int first) {
    const std::int64_t column = first_column + std::int64_t{kv_head} * kHeadDim;
    copy_tile_async<kDqThreads, kKeys>(
        to, p.qkv + first * layout.row + column, layout.row, tokens - first);
    copy_commit();
  };

  const DqRows rows = rows_of_lane(p, head, query0 + warp_row, last);
  const int last_lo = p.lo[last];
  float grad_q[kHeadDim / 8][4] = {};
  int key0 = p.lo[query0] / kKeys * kKeys;
  copy_tile_async<kDqThreads, kDqQueries>(
      q, p.qkv + query0 * layout.row + q_column, layout.row, tokens - query0);
  copy_tile_async<kDqThreads, kDqQueries>(
      grad_o, p.grad_o + query0 * o_row + q_column, o_row, tokens - query0);
  copy_keys(v, layout.v, key0);
  for (; key0 <= last; key0 += kKeys) {
    copy_wait_and_sync<0>();  // V is there, and every warp has left dQ += dS K
    copy_keys(k, layout.k, key0);
    float grad_p[kKeys / 8][4];
    multiply_rows(grad_p, grad_o, warp_row, v, 0);

    copy_wait_and_sync<0>();  // K is there, and every warp has left dP
    if (key0 + kKeys <= last) copy_keys(v, layout.v, key0 + kKeys);
    float s[kKeys / 8][4];
    multiply_rows(s, q, warp_row, k, 0);
    std::uint32_t grad_s[kKeys / 16][4];
    if (key0 + kKeys - 1 > query0 || key0 < last_lo) {
      make_grad_scores<kCapped, true>(s, grad_p, grad_s, scale, rows, key0);
    } else {
      make_grad_scores<kCapped, false>(s, grad_p, grad_s, scale, rows, key0);
    }
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) multiply_columns(grad_q, grad_s[i], k, i * 16, 0);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows.row[r] > last) continue;
    store_row(grad_q, r, shape.scale, p.grad_qkv + rows.row[r] * layout.row + q_column);
  }
}

// dK/dV: 64 keys a block. For the scores the eight warps are 4 strips of 16 keys by 2 halves of the
// 64 queries; for the gradients, 4 strips of 16 keys by 2 halves of head_dim. P^T and dS^T change
// hands through shared memory.
constexpr int kDkdvThreads = 256;
constexpr int kDkdvKeys = 64;
constexpr int kDkdvQueries = 64;
constexpr int kHalfBlocks = kDkdvQueries / 2 / 8;  // 16 x 8 score blocks of a warp

template <int kHeadDim>
struct alignas(128) DkdvShared {
  __nv_bfloat16 k[kDkdvKeys * kHeadDim];
  __nv_bfloat16 v[kDkdvKeys * kHeadDim];
  __nv_bfloat16 q[kDkdvQueries * kHeadDim];
  __nv_bfloat16 grad_o[kDkdvQueries * kHeadDim];
  __nv_bfloat16 p[kDkdvKeys * kDkdvQueries];
  __nv_bfloat16 grad_s[kDkdvKeys * kDkdvQueries];
  float lse[kDkdvQueries];
  float delta[kDkdvQueries];
};

__device__ __forceinline__ void store_pair(std::uint32_t address, float low, float high) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(pack_bf16(low, high)) : "memory");
}

// A lane's two keys, and the last queries that see them.
struct DkdvKeys {
  int key[2];
  int hi[2];
};

__device__ __forceinline__ DkdvKeys keys_of_lane(const int* hi, int strip, int last) {
  DkdvKeys keys;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    keys.key[r] = strip + fragment_row(threadIdx.x % 32, 2 * r);
    keys.hi[r] = hi[min(keys.key[r], last)];
  }
  return keys;
}

// From a warp's 16 x 32 scores and dP, both transposed, its part of P^T and dS^T in shared memory.
template <bool kCapped, int kHeadDim>
__device__ __forceinline__ void write_weights(const float (&s)[kHalfBlocks][4],
                                              const float (&grad_p)[kHalfBlocks][4],
                                              DkdvShared<kHeadDim>& shared,
                                              const DkdvKeys& keys,
                                              ScoreScale scale,
                                              int query0,
                                              bool masked) {
  const SwizzledTile<kDkdvQueries> probabilities{shared_address(shared.p)};
  const SwizzledTile<kDkdvQueries> grad_scores{shared_address(shared.grad_s)};
  const int lane = threadIdx.x % 32;
  const int strip = threadIdx.x / 32 % 4 * 16;
  const int first_column = threadIdx.x / 128 * kDkdvQueries / 2;
#pragma unroll
  for (int n = 0; n < kHalfBlocks; ++n) {
    float weight[4], grad_s[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = first_column + fragment_column(lane, n, i);
      const int query = query0 + column;
      const bool visible = !masked || (keys.key[i / 2] <= query && query <= keys.hi[i / 2]);
      float t;
      weight[i] = probability<kCapped>(s[n][i], scale, shared.lse[column], &t);
      weight[i] = visible ? weight[i] : 0;
      grad_s[i] = times_slope<kCapped>(weight[i], t) * (grad_p[n][i] - shared.delta[column]);
    }
    const int column = first_column + fragment_column(lane, n, 0);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = strip + fragment_row(lane, 2 * r);
      store_pair(probabilities.at(row, column), weight[2 * r], weight[2 * r + 1]);
      store_pair(grad_scores.at(row, column), grad_s[2 * r], grad_s[2 * r + 1]);
    }
  }
}

// gradient += weights rows: the warp's strip of keys, its half of head_dim, all queries of a tile.
template <int kHeadDim, int kBlocks>
__device__ __forceinline__ void add_weighted_rows(float (&gradient)[kBlocks][4],
                                                  const __nv_bfloat16* weights,
                                                  SwizzledTile<kHeadDim> rows) {
  const SwizzledTile<kDkdvQueries> tile{shared_address(weights)};
  const int strip = threadIdx.x / 32 % 4 * 16;
  const int first_column = threadIdx.x / 128 * kHeadDim / 2;
#pragma unroll
  for (int i = 0; i < kDkdvQueries; i += 16) {
    std::uint32_t a[4];
    load_a(a, tile, strip, i);
    multiply_columns(gradient, a, rows, i, first_column);
  }
}

// A block's steps: the query tiles that see its keys, once for each query head of the group.
struct DkdvSteps {
  int first_query;
  int last_query;
  int query0;
  int head;
  __device__ void next() {
    query0 += kDkdvQueries;
    if (query0 > last_query) {
      query0 = first_query;
      ++head;
    }
  }
};

template <int kHeadDim, bool kCapped>
__global__ void __launch_bounds__(kDkdvThreads, 1)
    attention_dkdv_mma_kernel(Backward p, QkvLayout layout, ScoreScale scale) {
  constexpr int kGradientBlocks = kHeadDim / 2 / 8;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<DkdvShared<kHeadDim>*>(shared_bytes);
  const SwizzledTile<kHeadDim> k{shared_address(shared.k)}, v{shared_address(shared.v)};
  const SwizzledTile<kHeadDim> q{shared_address(shared.q)}, grad_o{shared_address(shared.grad_o)};
  const AttentionShape& shape = p.shape;
  const int tokens = static_cast<int>(shape.tokens);
  const BlockPlace place = place_longest_first(shape.kv_heads, Longest::kFirstTile);
  const int key0 = place.tile * kDkdvKeys;
  const int last = min(key0 + kDkdvKeys, tokens) - 1;
  const int kv_head = place.head;
  const int group = shape.q_heads / shape.kv_heads;
  const int strip = threadIdx.x / 32 % 4 * 16;
  const int half = threadIdx.x / 128;
  const std::int64_t o_row = std::int64_t{shape.q_heads} * kHeadDim;
  const std::int64_t kv_column = std::int64_t{kv_head} * kHeadDim;

  const auto copy_q = [&](const DkdvSteps& step) {
    const __nv_bfloat16* from = p.qkv + step.query0 * layout.row + step.head * kHeadDim;
    copy_tile_async<kDkdvThreads, kDkdvQueries>(q, from, layout.row, tokens - step.query0);
    const float* lse = p.lse + step.head * shape.tokens + step.query0;
    copy_floats_async<kDkdvQueries>(shared.lse, lse, tokens - step.query0);
    copy_commit();
  };
  const auto copy_grad_o = [&](const DkdvSteps& step) {
    const __nv_bfloat16* from = p.grad_o + step.query0 * o_row + step.head * kHeadDim;
    copy_tile_async<kDkdvThreads, kDkdvQueries>(grad_o, from, o_row, tokens - step.query0);
    const float* delta = p.delta + step.head * shape.tokens + step.query0;
    copy_floats_async<kDkdvQueries>(shared.delta, delta, tokens - step.query0);
    copy_commit();
  };

  const DkdvKeys keys = keys_of_lane(p.hi, key0 + strip, last);
  const int first_hi = p.hi[key0];
  const __nv_bfloat16* rows = p.qkv + key0 * layout.row + kv_column;
  copy_tile_async<kDkdvThreads, kDkdvKeys>(k, rows + layout.k, layout.row, tokens - key0);
  copy_tile_async<kDkdvThreads, kDkdvKeys>(v, rows + layout.v, layout.row, tokens - key0);
  DkdvSteps step{key0, p.hi[last], key0, kv_head * group};
  copy_grad_o(step);
  float grad_k[kGradientBlocks][4] = {}, grad_v[kGradientBlocks][4] = {};
  while (step.head < (kv_head + 1) * group) {
    copy_wait_and_sync<0>();  // dO is there, and every warp has left dK += dS^T Q
    copy_q(step);
    float grad_p[kHalfBlocks][4];
    multiply_rows(grad_p, v, strip, grad_o, half * kDkdvQueries / 2);
    copy_wait_and_sync<0>();  // Q is there
    float s[kHalfBlocks][4];
    multiply_rows(s, k, strip, q, half * kDkdvQueries / 2);

    const bool masked =
        step.query0 < key0 + kDkdvKeys - 1 || step.query0 + kDkdvQueries - 1 > first_hi;
    write_weights<kCapped>(s, grad_p, shared, keys, scale, step.query0, masked);
    __syncthreads();
    add_weighted_rows(grad_v, shared.p, grad_o);
    __syncthreads();  // every warp has left dV += P^T dO
    step.next();
    if (step.head < (kv_head + 1) * group) copy_grad_o(step);
    add_weighted_rows(grad_k, shared.grad_s, q);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (keys.key[r] > last) continue;
    const std::int64_t row = keys.key[r] * layout.row + kv_column + half * kHeadDim / 2;
    store_row(grad_k, r, shape.scale, p.grad_qkv + row + layout.k);
    store_row(grad_v, r, 1, p.grad_qkv + row + layout.v);
  }
}

template <int kHeadDim, bool kCapped>
cudaError_t launch_dq(const Backward& p, cudaStream_t stream) {
  const auto kernel = attention_dq_mma_kernel<kHeadDim, kCapped>;
  constexpr int kBytes = kDqBytes<kHeadDim>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kDqQueries) * p.shape.q_heads;
  kernel<<<blocks, kDqThreads, kBytes, stream>>>(p, qkv_layout(p.shape), score_scale(p.shape));
  return cudaGetLastError();
}

template <int kHeadDim, bool kCapped>
cudaError_t launch_dkdv(const Backward& p, cudaStream_t stream) {
  const auto kernel = attention_dkdv_mma_kernel<kHeadDim, kCapped>;
  constexpr int kBytes = sizeof(DkdvShared<kHeadDim>);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int blocks = ceil_div(p.shape.tokens, kDkdvKeys) * p.shape.kv_heads;
  kernel<<<blocks, kDkdvThreads, kBytes, stream>>>(p, qkv_layout(p.shape), score_scale(p.shape));
  return cudaGetLastError();
}

}  // namespace

int attention_mma_shared_bytes(int head_dim) {
  return head_dim == 256 ? sizeof(DkdvShared<256>) : sizeof(DkdvShared<128>);
}

cudaError_t attention_dq_mma(const Backward& p, cudaStream_t stream) {
  const bool capped = p.shape.softcap > 0;
  if (p.shape.head_dim == 256) {
    return capped ? launch_dq<256, true>(p, stream) : launch_dq<256, false>(p, stream);
  }
  return capped ? launch_dq<128, true>(p, stream) : launch_dq<128, false>(p, stream);
}

cudaError_t attention_dkdv_mma(const Backward& p, cudaStream_t stream) {
  const bool capped = p.shape.softcap > 0;
  if (p.shape.head_dim == 256) {
    return capped ? launch_dkdv<256, true>(p, stream) : launch_dkdv<256, false>(p, stream);
  }
  return capped ? launch_dkdv<128, true>(p, stream) : launch_dkdv<128, false>(p, stream);
}

}  // namespace g2::kernels::detail
