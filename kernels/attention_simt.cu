// Attention on f32 FMAs: exact f32 runs, head dims without a tensor-core kernel, and the first
// thing to compare the fast paths with. One block owns 32 rows of one head; rows of the other side
// stream through shared memory, 32 at a time and 64 columns of head_dim at a time.
#include <type_traits>

#include "kernels/attention_detail.h"

namespace g2::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;   // rows of both sides of a score tile
constexpr int kChunk = 64;  // columns of head_dim in shared memory
constexpr int kPitch =
    kChunk + 4;  // an odd number of 16-byte units: no bank conflicts down a column
constexpr int kScorePitch = kTile + 4;
constexpr int kMaxChunks = 4;  // head_dim <= 256

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ void store(float* to, float x) {
  *to = x;
}
__device__ void store(__nv_bfloat16* to, float x) {
  *to = __float2bfloat16_rn(x);
}

// Up to 32 consecutive rows of one head; rows past `valid` read as zero.
template <typename T>
struct Rows {
  const T* data;
  std::int64_t pitch;
  std::int64_t valid;
  int head_dim;
};

template <typename T>
__device__ Rows<T> rows_at(const T* head,
                           std::int64_t pitch,
                           std::int64_t first,
                           const AttentionShape& s) {
  return {head + first * pitch, pitch, s.tokens - first, s.head_dim};
}

struct alignas(16) Shared {
  float a[kTile][kPitch];
  float b[kTile][kPitch];
};

template <typename T>
__device__ void load_chunk(float (&to)[kTile][kPitch], const Rows<T>& rows, int first_column) {
  const int column = threadIdx.x % kChunk;
  const bool in_row = first_column + column < rows.head_dim;
  for (int row = threadIdx.x / kChunk; row < kTile; row += kThreads / kChunk) {
    const bool exists = in_row && row < rows.valid;
    to[row][column] = exists ? to_float(rows.data[row * rows.pitch + first_column + column]) : 0;
  }
}

// Where a thread's 2 x 2 values lie in a 32 x 32 score tile: 16 lanes side by side share a row.
__device__ int score_row(int i) {
  return threadIdx.x / 16 + 16 * i;
}
__device__ int score_column(int j) {
  return threadIdx.x % 16 + 16 * j;
}

// products[i][j] = a[score_row(i)] . b[score_column(j)]
template <typename T>
__device__ void dot_rows(float (&products)[2][2],
                         const Rows<T>& a,
                         const Rows<T>& b,
                         Shared& shared) {
  products[0][0] = products[0][1] = products[1][0] = products[1][1] = 0;
  for (int column = 0; column < a.head_dim; column += kChunk) {
    load_chunk(shared.a, a, column);
    load_chunk(shared.b, b, column);
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < kChunk; k += 4) {
      float4 x[2], y[2];
      for (int i = 0; i < 2; ++i) {
        x[i] = *reinterpret_cast<const float4*>(&shared.a[score_row(i)][k]);
        y[i] = *reinterpret_cast<const float4*>(&shared.b[score_column(i)][k]);
      }
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
          products[i][j] = fmaf(x[i].x, y[j].x, products[i][j]);
          products[i][j] = fmaf(x[i].y, y[j].y, products[i][j]);
          products[i][j] = fmaf(x[i].z, y[j].z, products[i][j]);
          products[i][j] = fmaf(x[i].w, y[j].w, products[i][j]);
        }
      }
    }
    __syncthreads();
  }
}

// A block's 32 x head_dim result: warp w owns rows 4w .. 4w+3, lane l columns l + 32 c.
constexpr int kOwnedRows = kTile / (kThreads / 32);
template <int kChunks>
using Accumulator = float[kOwnedRows][2 * kChunks];

__device__ int owned_row(int r) {
  return threadIdx.x / 32 * kOwnedRows + r;
}
__device__ int owned_column(int c) {
  return threadIdx.x % 32 + 32 * c;
}

// sum[r] += sum over j of weights[owned_row(r)][j] rows[j]. Ends with a barrier, so that `weights`
// may be overwritten.
template <int kChunks, typename T>
__device__ void add_weighted_rows(Accumulator<kChunks>& sum,
                                  const float (&weights)[kTile][kScorePitch],
                                  const Rows<T>& rows,
                                  Shared& shared) {
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    load_chunk(shared.b, rows, chunk * kChunk);
    __syncthreads();
#pragma unroll 2
    for (int j = 0; j < kTile; j += 4) {
      float4 weight[kOwnedRows];
#pragma unroll
      for (int r = 0; r < kOwnedRows; ++r) {
        weight[r] = *reinterpret_cast<const float4*>(&weights[owned_row(r)][j]);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = owned_column(c);
        const float x = shared.b[j][column], y = shared.b[j + 1][column];
        const float z = shared.b[j + 2][column], w = shared.b[j + 3][column];
#pragma unroll
        for (int r = 0; r < kOwnedRows; ++r) {
          float& total = sum[r][2 * chunk + c];
          total = fmaf(weight[r].x, x, total);
          total = fmaf(weight[r].y, y, total);
          total = fmaf(weight[r].z, z, total);
          total = fmaf(weight[r].w, w, total);
        }
      }
    }
    __syncthreads();
  }
}

template <int kChunks, typename T>
__device__ void store_rows(const Accumulator<kChunks>& sum,
                           const float (&factor)[kOwnedRows],
                           T* head,
                           std::int64_t pitch,
                           std::int64_t first,
                           const AttentionShape& s) {
  for (int r = 0; r < kOwnedRows; ++r) {
    const std::int64_t row = first + owned_row(r);
    if (row >= s.tokens) return;
#pragma unroll
    for (int c = 0; c < 2 * kChunks; ++c) {
      if (owned_column(c) < s.head_dim) {
        store(head + row * pitch + owned_column(c), sum[r][c] * factor[r]);
      }
    }
  }
}

// A raw q . k turned into S log2(e), and the derivative of S by s.
struct Score {
  float log2_weight;
  float slope;
};

__device__ Score score_of(float product, const AttentionShape& s) {
  if (s.softcap == 0) return {product * s.scale * kLog2E, 1};
  const float t = tanhf(product * s.scale / s.softcap);
  return {t * s.softcap * kLog2E, fmaf(-t, t, 1)};
}

__device__ float max_over_row(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}

__device__ float sum_over_row(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Running maximum and sum of a thread's two score rows.
struct SoftmaxState {
  float maximum[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};
};

// From scores, -inf where masked: weights relative to the new maximum, and what the sums so far are
// to be multiplied by.
__device__ void online_softmax(const float (&x)[2][2],
                               SoftmaxState& state,
                               float (&weights)[kTile][kScorePitch],
                               float (&row_factor)[kTile]) {
  for (int i = 0; i < 2; ++i) {
    const float above = fmaxf(state.maximum[i], max_over_row(fmaxf(x[i][0], x[i][1])));
    const float base = above == -INFINITY ? 0 : above;  // nothing visible yet: inf - inf is NaN
    const float rescale = exp2f(state.maximum[i] - base);
    const float low = exp2f(x[i][0] - base), high = exp2f(x[i][1] - base);
    weights[score_row(i)][score_column(0)] = low;
    weights[score_row(i)][score_column(1)] = high;
    state.maximum[i] = above;
    state.total[i] = state.total[i] * rescale + sum_over_row(low + high);
    if (score_column(0) == 0) row_factor[score_row(i)] = rescale;
  }
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads, 2)
    attention_forward_simt_kernel(AttentionForward<T> p, QkvLayout layout) {
  __shared__ Shared shared;
  __shared__ alignas(16) float weights[kTile][kScorePitch];
  __shared__ float row_factor[kTile];
  const AttentionShape& s = p.shape;
  const std::int64_t first =
      std::int64_t{gridDim.x - 1 - blockIdx.x} * kTile;  // longest rows first
  const std::int64_t last = min(first + kTile, s.tokens) - 1;
  const int head = blockIdx.y;
  const int kv_head = head / (s.q_heads / s.kv_heads);
  const T* k = p.qkv + layout.k + kv_head * s.head_dim;
  const T* v = p.qkv + layout.v + kv_head * s.head_dim;
  const Rows<T> q = rows_at(p.qkv + head * s.head_dim, layout.row, first, s);

  int lo[2];
  for (int i = 0; i < 2; ++i) lo[i] = p.lo[min(first + score_row(i), last)];
  SoftmaxState state;
  Accumulator<kChunks> o = {};
  for (std::int64_t key0 = p.lo[first] / kTile * kTile; key0 <= last; key0 += kTile) {
    float products[2][2];
    dot_rows(products, q, rows_at(k, layout.row, key0, s), shared);
    float x[2][2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t row = first + score_row(i);
      for (int j = 0; j < 2; ++j) {
        const std::int64_t key = key0 + score_column(j);
        const bool visible = lo[i] <= key && key <= row && row <= last;
        x[i][j] = visible ? score_of(products[i][j], s).log2_weight : -INFINITY;
      }
    }
    online_softmax(x, state, weights, row_factor);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kOwnedRows; ++r) {
      for (int c = 0; c < 2 * kChunks; ++c) o[r][c] *= row_factor[owned_row(r)];
    }
    add_weighted_rows<kChunks>(o, weights, rows_at(v, layout.row, key0, s), shared);
  }

  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = first + score_row(i);
    if (score_column(0) != 0 || row > last) continue;
    row_factor[score_row(i)] = 1 / state.total[i];
    p.lse[head * s.tokens + row] = state.maximum[i] + log2f(state.total[i]);
  }
  __syncthreads();
  float factor[kOwnedRows];
  for (int r = 0; r < kOwnedRows; ++r) factor[r] = row_factor[owned_row(r)];
  const std::int64_t o_pitch = std::int64_t{s.q_heads} * s.head_dim;
  store_rows<kChunks>(o, factor, p.o + head * s.head_dim, o_pitch, first, s);
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads, 2)
    attention_dq_simt_kernel(AttentionBackward<T> p, QkvLayout layout) {
  __shared__ Shared shared;
  __shared__ alignas(16) float weights[kTile][kScorePitch];
  const AttentionShape& s = p.shape;
  const std::int64_t first = std::int64_t{gridDim.x - 1 - blockIdx.x} * kTile;
  const std::int64_t last = min(first + kTile, s.tokens) - 1;
  const int head = blockIdx.y;
  const int kv_head = head / (s.q_heads / s.kv_heads);
  const std::int64_t o_pitch = std::int64_t{s.q_heads} * s.head_dim;
  const T* k = p.qkv + layout.k + kv_head * s.head_dim;
  const T* v = p.qkv + layout.v + kv_head * s.head_dim;
  const Rows<T> q = rows_at(p.qkv + head * s.head_dim, layout.row, first, s);
  const Rows<T> grad_o = rows_at(p.grad_o + head * s.head_dim, o_pitch, first, s);

  int lo[2];
  float lse[2], delta[2];
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = min(first + score_row(i), last);
    lo[i] = p.lo[row];
    lse[i] = p.lse[head * s.tokens + row];
    delta[i] = p.delta[head * s.tokens + row];
  }
  Accumulator<kChunks> grad_q = {};
  for (std::int64_t key0 = p.lo[first] / kTile * kTile; key0 <= last; key0 += kTile) {
    const Rows<T> keys = rows_at(k, layout.row, key0, s);
    float products[2][2], grad_p[2][2];
    dot_rows(products, q, keys, shared);
    dot_rows(grad_p, grad_o, rows_at(v, layout.row, key0, s), shared);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const std::int64_t key = key0 + score_column(j);
        const bool visible = lo[i] <= key && key <= first + score_row(i);
        const Score x = score_of(products[i][j], s);
        const float weight = visible ? exp2f(x.log2_weight - lse[i]) : 0;
        weights[score_row(i)][score_column(j)] =
            visible ? weight * (grad_p[i][j] - delta[i]) * x.slope : 0;
      }
    }
    __syncthreads();
    add_weighted_rows<kChunks>(grad_q, weights, keys, shared);
  }
  float factor[kOwnedRows];
  for (float& f : factor) f = s.scale;
  store_rows<kChunks>(grad_q, factor, p.grad_qkv + head * s.head_dim, layout.row, first, s);
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads, kChunks == kMaxChunks ? 1 : 2)
    attention_dkdv_simt_kernel(AttentionBackward<T> p, QkvLayout layout) {
  __shared__ Shared shared;
  __shared__ alignas(16) float weights[kTile][kScorePitch];      // P transposed: [key][query]
  __shared__ alignas(16) float grad_scores[kTile][kScorePitch];  // dS / scale, transposed
  const AttentionShape& s = p.shape;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;  // the first keys have most queries
  const std::int64_t last = min(first + kTile, s.tokens) - 1;
  const int kv_head = blockIdx.y;
  const int group = s.q_heads / s.kv_heads;
  const std::int64_t o_pitch = std::int64_t{s.q_heads} * s.head_dim;
  const std::int64_t k_offset = layout.k + kv_head * s.head_dim;
  const std::int64_t v_offset = layout.v + kv_head * s.head_dim;
  const Rows<T> keys = rows_at(p.qkv + k_offset, layout.row, first, s);
  const Rows<T> values = rows_at(p.qkv + v_offset, layout.row, first, s);

  int hi[2];
  for (int i = 0; i < 2; ++i) hi[i] = p.hi[min(first + score_row(i), last)];
  Accumulator<kChunks> grad_k = {}, grad_v = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const T* q = p.qkv + head * s.head_dim;
    const T* grad_o = p.grad_o + head * s.head_dim;
    const float* lse = p.lse + head * s.tokens;
    const float* delta = p.delta + head * s.tokens;
    for (std::int64_t query0 = first; query0 <= p.hi[last]; query0 += kTile) {
      const Rows<T> q_rows = rows_at(q, layout.row, query0, s);
      const Rows<T> grad_o_rows = rows_at(grad_o, o_pitch, query0, s);
      float products[2][2], grad_p[2][2];
      dot_rows(products, keys, q_rows, shared);
      dot_rows(grad_p, values, grad_o_rows, shared);
      for (int j = 0; j < 2; ++j) {
        const std::int64_t query = query0 + score_column(j);
        const std::int64_t row = min(query, s.tokens - 1);
        for (int i = 0; i < 2; ++i) {
          const bool visible = first + score_row(i) <= query && query <= hi[i];
          const Score x = score_of(products[i][j], s);
          const float weight = visible ? exp2f(x.log2_weight - lse[row]) : 0;
          weights[score_row(i)][score_column(j)] = weight;
          grad_scores[score_row(i)][score_column(j)] =
              visible ? weight * (grad_p[i][j] - delta[row]) * x.slope : 0;
        }
      }
      __syncthreads();
      add_weighted_rows<kChunks>(grad_v, weights, grad_o_rows, shared);
      add_weighted_rows<kChunks>(grad_k, grad_scores, q_rows, shared);
    }
  }
  float factor[kOwnedRows];
  for (float& f : factor) f = 1;
  store_rows<kChunks>(grad_v, factor, p.grad_qkv + v_offset, layout.row, first, s);
  for (float& f : factor) f = s.scale;
  store_rows<kChunks>(grad_k, factor, p.grad_qkv + k_offset, layout.row, first, s);
}

// Calls launch with the number of chunks that head_dim needs, as a constant.
template <typename Launch>
cudaError_t with_chunks(int head_dim, const Launch& launch) {
  if (head_dim <= kChunk) {
    launch(std::integral_constant<int, 1>{});
  } else if (head_dim <= 2 * kChunk) {
    launch(std::integral_constant<int, 2>{});
  } else {
    launch(std::integral_constant<int, kMaxChunks>{});
  }
  return cudaGetLastError();
}

}  // namespace

template <typename T>
cudaError_t attention_forward_simt(const AttentionForward<T>& p, cudaStream_t stream) {
  return with_chunks(p.shape.head_dim, [&](auto chunks) {
    const dim3 grid(ceil_div(p.shape.tokens, kTile), p.shape.q_heads);
    attention_forward_simt_kernel<T, chunks><<<grid, kThreads, 0, stream>>>(p, qkv_layout(p.shape));
  });
}

template <typename T>
cudaError_t attention_dq_simt(const AttentionBackward<T>& p, cudaStream_t stream) {
  return with_chunks(p.shape.head_dim, [&](auto chunks) {
    const dim3 grid(ceil_div(p.shape.tokens, kTile), p.shape.q_heads);
    attention_dq_simt_kernel<T, chunks><<<grid, kThreads, 0, stream>>>(p, qkv_layout(p.shape));
  });
}

template <typename T>
cudaError_t attention_dkdv_simt(const AttentionBackward<T>& p, cudaStream_t stream) {
  return with_chunks(p.shape.head_dim, [&](auto chunks) {
    const dim3 grid(ceil_div(p.shape.tokens, kTile), p.shape.kv_heads);
    attention_dkdv_simt_kernel<T, chunks><<<grid, kThreads, 0, stream>>>(p, qkv_layout(p.shape));
  });
}

template cudaError_t attention_forward_simt(const AttentionForward<float>&, cudaStream_t);
template cudaError_t attention_forward_simt(const AttentionForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t attention_dq_simt(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t attention_dq_simt(const AttentionBackward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t attention_dkdv_simt(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t attention_dkdv_simt(const AttentionBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels::detail
