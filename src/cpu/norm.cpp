#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/lanes.h"

namespace g2::cpu {

void CpuOps::block_sums_of_squares(const BlockSumsOfSquares& p) {
  const std::int64_t n = p.x.size();
  require(p.block_sums.size() == (n + kNormBlock - 1) / kNormBlock,
          "block_sums_of_squares",
          "need one sum a block",
          p.x,
          p.block_sums);
  require_dtype("block_sums_of_squares", work_dtype(p.x.dtype), p.x);
  require_dtype("block_sums_of_squares", DType::kF64, p.block_sums);
  for_dtype("block_sums_of_squares", p.x.dtype, [&]<typename T>() {
    pool_.run_ranges(n, kNormBlock, [&](std::int64_t begin, std::int64_t end) {
      const T* x = p.x.as<T>() + begin;
      p.block_sums.as<double>()[begin / kNormBlock] = lane_sum<double>(
          end - begin, [&](std::int64_t i) { return double(x[i]) * double(x[i]); });
    });
  });
}

void CpuOps::clip_factor(const ClipFactor& p) {
  require_dtype("clip_factor", DType::kF64, p.block_sums, p.norm, p.factor);
  double sum = 0;
  for (std::int64_t b = 0; b < p.block_sums.size(); ++b) sum += p.block_sums.as<double>()[b];
  const double norm = std::sqrt(sum);
  *p.norm.as<double>() = norm;
  *p.factor.as<double>() = p.max_norm > 0 && norm > p.max_norm ? p.max_norm / norm : 1;
}

}  // namespace g2::cpu
