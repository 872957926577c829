#include "kernels/geglu.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kPerThread = 2;
constexpr float kSqrt2OverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;

__device__ __forceinline__ float inner(float g) {
  return kSqrt2OverPi * g * fmaf(kCubic * g, g, 1.f);
}

__device__ __forceinline__ float gelu(float g) {
  return __fdividef(g, 1 + __expf(-2 * inner(g)));
}

// gelu(g) and its slope.
struct Gelu {
  float value;
  float slope;
};
__device__ __forceinline__ Gelu gelu_and_slope(float g) {
  const float v = inner(g);
  const float q = __expf(-2 * fabsf(v));
  const float s = __fdividef(1.f, 1 + q);
  const float half_1_plus_t = v >= 0 ? s : q * s;
  const float half_1_minus_t2 = 2 * q * s * s;
  const float inner_slope = kSqrt2OverPi * fmaf(3 * kCubic * g, g, 1.f);
  return {g * half_1_plus_t, fmaf(g * half_1_minus_t2, inner_slope, half_1_plus_t)};
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads) geglu_forward_kernel(GegluForward<T> p, int parts) {
  const RowPart at = row_part(parts);
  const T* gate = p.gate_up + at.row * 2 * p.width;
  Vector<T, kWidth> g[kPerThread], u[kPerThread];
  for_vectors<kWidth, kPerThread>(at.part, p.width, [&](int i, int column) {
    g[i] = load<kWidth>(gate + column);
    u[i] = load<kWidth>(gate + p.width + column);
  });
  for_vectors<kWidth, kPerThread>(at.part, p.width, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      g[i].x[j] = rounded<T>(gelu(to_float(g[i].x[j])) * to_float(u[i].x[j]));
    }
    store(p.m + at.row * p.width + column, g[i]);
  });
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    geglu_backward_kernel(GegluBackward<T> p, int parts) {
  const RowPart at = row_part(parts);
  const T* gate = p.gate_up + at.row * 2 * p.width;
  T* grad_gate = p.grad_gate_up + at.row * 2 * p.width;
  Vector<T, kWidth> g[kPerThread], u[kPerThread], dm[kPerThread];
  for_vectors<kWidth, kPerThread>(at.part, p.width, [&](int i, int column) {
    g[i] = load<kWidth>(gate + column);
    u[i] = load<kWidth>(gate + p.width + column);
    dm[i] = load<kWidth>(p.grad_m + at.row * p.width + column);
  });
  for_vectors<kWidth, kPerThread>(at.part, p.width, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const Gelu gelu = gelu_and_slope(to_float(g[i].x[j]));
      const float grad = to_float(dm[i].x[j]);
      g[i].x[j] = rounded<T>(grad * to_float(u[i].x[j]) * gelu.slope);
      u[i].x[j] = rounded<T>(grad * gelu.value);
    }
    store(grad_gate + column, g[i]);
    store(grad_gate + p.width + column, u[i]);
  });
}

bool is_valid(std::int64_t tokens, int width) {
  return tokens >= 0 && tokens < (std::int64_t{1} << 31) && width >= 1;
}

}  // namespace

template <typename T>
cudaError_t geglu_forward(const GegluForward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.width)) return cudaErrorInvalidValue;
  if (p.tokens == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.width, p.gate_up, p.m);
  const RowGrid grid = row_grid(p.tokens, p.width, wide ? kWide<T> : 1, kPerThread, kMaxThreads);
  if (wide) {
    geglu_forward_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    geglu_forward_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t geglu_backward(const GegluBackward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.width)) return cudaErrorInvalidValue;
  if (p.tokens == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.width, p.grad_m, p.gate_up, p.grad_gate_up);
  const RowGrid grid = row_grid(p.tokens, p.width, wide ? kWide<T> : 1, kPerThread, kMaxThreads);
  if (wide) {
    geglu_backward_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    geglu_backward_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

template cudaError_t geglu_forward(const GegluForward<float>&, cudaStream_t);
template cudaError_t geglu_forward(const GegluForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t geglu_backward(const GegluBackward<float>&, cudaStream_t);
template cudaError_t geglu_backward(const GegluBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
