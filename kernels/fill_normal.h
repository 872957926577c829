// Normal random numbers by counter, the same bits as on the host.
//
//   y[i] = float(std_dev normal_quantile((word + 0.5) / 2^32)),
//   word = word i % 4 of Philox 4x32-10 at counter {i / 4, stream, seed >> 32}, key {seed, purpose}
//
// Requires     count >= 0, may pass 2^31 (0 launches nothing).
// Arithmetic   f64 by additions, multiplications, divisions and square roots, each rounded once:
//              the file is compiled with -fmad=false.
// Determinism  bitwise, and equal to src/base/normal_quantile.cpp.
// Twin, test   src/base/philox.h, src/cpu/fill_normal.cpp, tests/ops/cuda_flat_test.cpp
// Source       Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC'11); Wichura,
//              algorithm AS 241 (PPND16), Applied Statistics 37 (1988)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

struct FillNormal {
  float* y;
  std::int64_t count;
  std::uint64_t seed;
  std::uint32_t purpose;
  std::uint32_t stream;
  double std_dev;
};

cudaError_t fill_normal(const FillNormal& p, cudaStream_t stream);

}  // namespace g2::kernels
