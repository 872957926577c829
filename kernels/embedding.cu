#include "kernels/embedding.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kPerThread = 2;
// Small blocks over few columns: a frequent token's long sum is spread over many of them.
constexpr int kBackwardThreads = 64;
constexpr int kRowsInFlight = 8;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    embedding_forward_kernel(EmbeddingForward<T> p, int parts) {
  const RowPart at = row_part(parts);
  const T* row = p.table + std::int64_t{p.ids[at.row]} * p.hidden;
  Vector<T, kWidth> v[kPerThread];
  for_vectors<kWidth, kPerThread>(
      at.part, p.hidden, [&](int i, int column) { v[i] = load<kWidth>(row + column); });
  for_vectors<kWidth, kPerThread>(at.part, p.hidden, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v[i].x[j] = rounded<T>(p.scale * to_float(v[i].x[j]));
    store(p.y + at.row * p.hidden + column, v[i]);
  });
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kBackwardThreads)
    embedding_backward_kernel(EmbeddingBackward<T> p, int parts) {
  const RowPart at = row_part(parts);
  const int begin = p.begin[at.row];
  const int end = p.begin[at.row + 1];
  for_vectors<kWidth, 1>(at.part, p.hidden, [&](int, int column) {
    float sum[kWidth] = {};
    for (int first = begin; first < end; first += kRowsInFlight) {
      Vector<T, kWidth> v[kRowsInFlight];
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) {
        if (first + k >= end) break;
        v[k] = load<kWidth>(p.grad_y + std::int64_t{p.rows[first + k]} * p.hidden + column);
      }
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) {
        if (first + k >= end) break;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sum[j] += to_float(v[k].x[j]);
      }
    }
    float* out = p.grad_table + std::int64_t{p.group_ids[at.row]} * p.hidden + column;
    float grad[kWidth];
    load_floats(out, grad);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) grad[j] = fmaf(p.scale, sum[j], grad[j]);
    store_floats(out, grad);
  });
}

bool is_valid(std::int64_t rows, int hidden) {
  return rows >= 0 && rows < (std::int64_t{1} << 31) && hidden >= 1;
}

}  // namespace

template <typename T>
cudaError_t embedding_forward(const EmbeddingForward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.hidden)) return cudaErrorInvalidValue;
  if (p.tokens == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.hidden, p.table, p.y);
  const RowGrid grid = row_grid(p.tokens, p.hidden, wide ? kWide<T> : 1, kPerThread, kMaxThreads);
  if (wide) {
    embedding_forward_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    embedding_forward_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t embedding_backward(const EmbeddingBackward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.groups, p.hidden)) return cudaErrorInvalidValue;
  if (p.groups == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.hidden, p.grad_y) && is_wide<float>(p.hidden, p.grad_table);
  const RowGrid grid = row_grid(p.groups, p.hidden, wide ? kWide<T> : 1, 1, kBackwardThreads);
  if (wide) {
    embedding_backward_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    embedding_backward_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

template cudaError_t embedding_forward(const EmbeddingForward<float>&, cudaStream_t);
template cudaError_t embedding_forward(const EmbeddingForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t embedding_backward(const EmbeddingBackward<float>&, cudaStream_t);
template cudaError_t embedding_backward(const EmbeddingBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
