// delta[a, i] = grad_o_i . o_i: a few lanes a row, 16 bytes a lane where head_dim allows it.
#include "kernels/attention_detail.h"

namespace g2::kernels::detail {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 32;  // tokens of a block, all of one head: their deltas leave in one line

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T x[kCount];
};

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// kLanes lanes share a row; each reads kVector elements at a time.
template <typename T, int kLanes, int kVector>
__global__ void __launch_bounds__(kThreads) attention_delta_kernel(AttentionBackward<T> p) {
  constexpr int kRowsAtOnce = kThreads / kLanes;
  const AttentionShape& s = p.shape;
  const int head = blockIdx.x % s.q_heads;  // neighbouring blocks read neighbouring memory
  const std::int64_t first = std::int64_t{blockIdx.x / s.q_heads} * kRows;
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int r = 0; r < kRows / kRowsAtOnce; ++r) {
    const std::int64_t token = first + r * kRowsAtOnce + threadIdx.x / kLanes;
    float sum = 0;
    if (token < s.tokens) {
      const std::int64_t row = (token * s.q_heads + head) * s.head_dim;
      for (int i = lane * kVector; i < s.head_dim; i += kLanes * kVector) {
        const auto x = *reinterpret_cast<const Vector<T, kVector>*>(p.o + row + i);
        const auto y = *reinterpret_cast<const Vector<T, kVector>*>(p.grad_o + row + i);
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum = fmaf(to_float(x.x[j]), to_float(y.x[j]), sum);
      }
    }
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(~0u, sum, lanes);
    }
    if (lane == 0 && token < s.tokens) p.delta[head * s.tokens + token] = sum;
  }
}

template <typename T, int kLanes, int kVector>
cudaError_t launch(const AttentionBackward<T>& p, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(p.shape.tokens, kRows)) * p.shape.q_heads;
  attention_delta_kernel<T, kLanes, kVector><<<blocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

template <typename T>
cudaError_t attention_delta(const AttentionBackward<T>& p, cudaStream_t stream) {
  constexpr int kVector = 16 / sizeof(T);
  if (p.shape.head_dim % kVector != 0) return launch<T, 32, 1>(p, stream);
  if (p.shape.head_dim <= 16 * kVector) return launch<T, 16, kVector>(p, stream);
  return launch<T, 32, kVector>(p, stream);
}

template cudaError_t attention_delta(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t attention_delta(const AttentionBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels::detail
