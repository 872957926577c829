// Conversion between f64, f32 and bf16.
//
//   y[i] = To(x[i]), to nearest, ties to even, in one rounding
//
// Requires     count >= 0, may pass 2^31 (0 launches nothing).
// Aliasing     none.
// Determinism  bitwise.
// Twin, test   src/cpu/cast.cpp, tests/ops/cuda_flat_test.cpp; speed in tests/bench/cuda_bench.cpp
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

template <typename From, typename To>
struct Cast {
  const From* x;
  To* y;
  std::int64_t count;
};

template <typename From, typename To>
cudaError_t cast(const Cast<From, To>& p, cudaStream_t stream);

}  // namespace g2::kernels
