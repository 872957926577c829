#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"

namespace g2::cpu {

void CpuOps::rope(const Rope& p) {
  const std::int64_t n = p.x.dim(0);
  const std::int64_t width = p.x.dim(1);
  const std::int64_t head_dim = p.table.dim(1);
  const std::int64_t half = head_dim / 2;
  require(p.heads * head_dim <= width && head_dim % 2 == 0 && p.positions.dim(0) == n,
          "rope",
          "need x [N, Q], positions [N], table [P, h], h even, heads h <= Q",
          p.x,
          p.positions,
          p.table);
  require_dtype("rope", work_dtype(p.x.dtype), p.table);
  require_dtype("rope", DType::kI32, p.positions);
  for_dtype("rope", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    const std::int32_t* positions = p.positions.as<std::int32_t>();
    const A sign = p.inverse ? A(-1) : A(1);
    pool_.run_ranges(n, rows_per_task(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const A* cosine = p.table.as<A>() + positions[row] * head_dim;
        const A* sine = cosine + half;
        for (std::int64_t head = 0; head < p.heads; ++head) {
          T* low = p.x.as<T>() + row * width + head * head_dim;
          T* high = low + half;
          for (std::int64_t i = 0; i < half; ++i) {
            const A a = A(low[i]);
            const A b = A(high[i]);
            const A s = sign * sine[i];
            low[i] = T(a * cosine[i] - b * s);
            high[i] = T(b * cosine[i] + a * s);
          }
        }
      }
    });
  });
}

}  // namespace g2::cpu
