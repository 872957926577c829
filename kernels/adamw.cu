#include "kernels/adamw.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kThreads = 256;

template <int kWidth, bool kCopies>
__global__ void __launch_bounds__(kThreads) adamw_kernel(Adamw p) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= p.count) return;
  const auto grad = load<kWidth>(p.grad + i);
  auto m = load<kWidth>(p.m + i);
  auto v = load<kWidth>(p.v + i);
  auto master = load<kWidth>(p.master + i);
  const auto factor = static_cast<float>(*p.factor);
  Vector<__nv_bfloat16, kWidth> copy;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float g = factor * grad.x[j];
    m.x[j] = p.beta1 * m.x[j] + p.one_minus_beta1 * g;
    v.x[j] = p.beta2 * v.x[j] + p.one_minus_beta2 * g * g;
    const float step = m.x[j] * p.correction1 / (sqrtf(v.x[j] * p.correction2) + p.eps);
    master.x[j] -= p.learning_rate * (step + p.weight_decay * master.x[j]);
    if constexpr (kCopies) copy.x[j] = __float2bfloat16_rn(master.x[j]);
  }
  store(p.m + i, m);
  store(p.v + i, v);
  store(p.master + i, master);
  if constexpr (kCopies) store(p.copy + i, copy);
}

template <int kWidth>
void launch(const Adamw& p, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.count, std::int64_t{kThreads} * kWidth));
  if (p.copy != nullptr) {
    adamw_kernel<kWidth, true><<<blocks, kThreads, 0, stream>>>(p);
  } else {
    adamw_kernel<kWidth, false><<<blocks, kThreads, 0, stream>>>(p);
  }
}

// The elements from `begin` on, `count` of them.
Adamw part_of(Adamw p, std::int64_t begin, std::int64_t count) {
  p.master += begin;
  p.m += begin;
  p.v += begin;
  p.grad += begin;
  if (p.copy != nullptr) p.copy += begin;
  p.count = count;
  return p;
}

}  // namespace

cudaError_t adamw(const Adamw& p, cudaStream_t stream) {
  if (p.count < 0) return cudaErrorInvalidValue;
  constexpr int kWidth = 4;
  const bool wide = are_aligned(16, p.master, p.m, p.v, p.grad) && are_aligned(8, p.copy);
  const std::int64_t whole = wide ? p.count / kWidth * kWidth : 0;
  if (whole > 0) launch<kWidth>(part_of(p, 0, whole), stream);
  if (p.count > whole) launch<1>(part_of(p, whole, p.count - whole), stream);
  return cudaGetLastError();
}

}  // namespace g2::kernels
