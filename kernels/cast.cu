#include "kernels/cast.h"

#include <type_traits>

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kThreads = 256;

template <typename To, typename From>
__device__ __forceinline__ To converted(From x) {
  if constexpr (!std::is_same_v<To, __nv_bfloat16>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_same_v<From, double>) {
    return __double2bfloat16(x);  // not by way of float, which would round twice
  } else {
    return rounded<To>(to_float(x));
  }
}

template <typename From, typename To, int kWidth>
__global__ void __launch_bounds__(kThreads) cast_kernel(Cast<From, To> p) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= p.count) return;
  const auto x = load<kWidth>(p.x + i);
  Vector<To, kWidth> y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) y.x[j] = converted<To>(x.x[j]);
  store(p.y + i, y);
}

template <typename From, typename To, int kWidth>
void launch(const Cast<From, To>& p, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.count, std::int64_t{kThreads} * kWidth));
  cast_kernel<From, To, kWidth><<<blocks, kThreads, 0, stream>>>(p);
}

}  // namespace

template <typename From, typename To>
cudaError_t cast(const Cast<From, To>& p, cudaStream_t stream) {
  if (p.count < 0) return cudaErrorInvalidValue;
  constexpr int kWidth =
      16 / static_cast<int>(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  const std::int64_t whole = are_aligned(16, p.x, p.y) ? p.count / kWidth * kWidth : 0;
  if (whole > 0) launch<From, To, kWidth>({p.x, p.y, whole}, stream);
  if (p.count > whole) launch<From, To, 1>({p.x + whole, p.y + whole, p.count - whole}, stream);
  return cudaGetLastError();
}

template cudaError_t cast(const Cast<double, double>&, cudaStream_t);
template cudaError_t cast(const Cast<double, float>&, cudaStream_t);
template cudaError_t cast(const Cast<double, __nv_bfloat16>&, cudaStream_t);
template cudaError_t cast(const Cast<float, double>&, cudaStream_t);
template cudaError_t cast(const Cast<float, float>&, cudaStream_t);
template cudaError_t cast(const Cast<float, __nv_bfloat16>&, cudaStream_t);
template cudaError_t cast(const Cast<__nv_bfloat16, double>&, cudaStream_t);
template cudaError_t cast(const Cast<__nv_bfloat16, float>&, cudaStream_t);
template cudaError_t cast(const Cast<__nv_bfloat16, __nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
