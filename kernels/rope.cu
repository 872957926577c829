#include "kernels/rope.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // of a thread: they share its cos and sin

// Thread (token, i) rotates columns [i kWidth, (i + 1) kWidth) of kHeads heads; blockIdx.y counts
// groups of heads.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope<T> p) {
  const int half = p.head_dim / 2;
  const int vectors = half / kWidth;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t token = index / vectors;
  if (token >= p.tokens) return;
  const int column = static_cast<int>(index - token * vectors) * kWidth;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  T* row = p.x + token * p.row_width + std::int64_t{first_head} * p.head_dim + column;
  Vector<T, kWidth> low[kHeads], high[kHeads];
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    if (first_head + k >= p.heads) break;
    low[k] = load<kWidth>(row + k * p.head_dim);
    high[k] = load<kWidth>(row + k * p.head_dim + half);
  }
  float cosine[kWidth], sine[kWidth];
  const float* angles = p.table + std::int64_t{p.positions[token]} * p.head_dim + column;
  load_floats(angles, cosine);
  load_floats(angles + half, sine);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sine[j] = p.inverse ? -sine[j] : sine[j];
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    if (first_head + k >= p.heads) break;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float a = to_float(low[k].x[j]);
      const float b = to_float(high[k].x[j]);
      low[k].x[j] = rounded<T>(a * cosine[j] - b * sine[j]);
      high[k].x[j] = rounded<T>(b * cosine[j] + a * sine[j]);
    }
    store(row + k * p.head_dim, low[k]);
    store(row + k * p.head_dim + half, high[k]);
  }
}

template <typename T, int kWidth>
cudaError_t launch(const Rope<T>& p, cudaStream_t stream) {
  const std::int64_t blocks = ceil_div(p.tokens * (p.head_dim / 2 / kWidth), kThreads);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(ceil_div(p.heads, kHeads)));
  rope_kernel<T, kWidth><<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

template <typename T>
cudaError_t rope(const Rope<T>& p, cudaStream_t stream) {
  if (p.tokens < 0 || p.heads < 0 || p.head_dim < 2 || p.head_dim % 2 != 0 ||
      std::int64_t{p.heads} * p.head_dim > p.row_width) {
    return cudaErrorInvalidValue;
  }
  if (p.tokens == 0 || p.heads == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.head_dim / 2, p.x) && is_wide<float>(p.head_dim / 2, p.table) &&
                    p.row_width % kWide<T> == 0;
  return wide ? launch<T, kWide<T>>(p, stream) : launch<T, 1>(p, stream);
}

template cudaError_t rope(const Rope<float>&, cudaStream_t);
template cudaError_t rope(const Rope<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
