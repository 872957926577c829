#include "kernels/norm.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kClipThreads = 1024;

template <int kWidth>
__global__ void __launch_bounds__(kThreads) block_sums_kernel(BlockSumsOfSquares p) {
  __shared__ double shared[kThreads / kWarp][1];
  const std::int64_t first = std::int64_t{blockIdx.x} * kNormBlock;
  const std::int64_t end = min(first + kNormBlock, p.count);
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = first + threadIdx.x * kWidth; i < end; i += kThreads * kWidth) {
    const auto v = load<kWidth>(p.x + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const double x = v.x[j];
      sum = fma(x, x, sum);
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) p.block_sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kClipThreads) clip_factor_kernel(ClipFactor p) {
  __shared__ double shared[kClipThreads / kWarp][1];
  double sum = 0;
  for (std::int64_t b = threadIdx.x; b < p.blocks; b += kClipThreads) sum += p.block_sums[b];
  sum = block_sum(sum, shared);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum);
  *p.norm = norm;
  *p.factor = p.max_norm > 0 && norm > p.max_norm ? p.max_norm / norm : 1;
}

}  // namespace

cudaError_t block_sums_of_squares(const BlockSumsOfSquares& p, cudaStream_t stream) {
  if (p.count < 0) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(p.count, kNormBlock));
  if (is_wide<float>(p.count, p.x)) {
    block_sums_kernel<4><<<blocks, kThreads, 0, stream>>>(p);
  } else {
    block_sums_kernel<1><<<blocks, kThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

cudaError_t clip_factor(const ClipFactor& p, cudaStream_t stream) {
  if (p.blocks < 0) return cudaErrorInvalidValue;
  clip_factor_kernel<<<1, kClipThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace g2::kernels
