#include <algorithm>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"

namespace g2::cpu {

void CpuOps::embedding_forward(const EmbeddingForward& p) {
  const std::int64_t n = p.ids.dim(0);
  const std::int64_t d = p.table.dim(1);
  require(p.y.dim(0) == n && p.y.dim(1) == d,
          "embedding_forward",
          "y must be [N, d]",
          p.ids,
          p.table,
          p.y);
  require_dtype("embedding_forward", DType::kI32, p.ids);
  require_dtype("embedding_forward", p.table.dtype, p.y);
  for_dtype("embedding_forward", p.table.dtype, [&]<typename T>() {
    using A = Work<T>;
    const std::int32_t* ids = p.ids.as<std::int32_t>();
    const T* table = p.table.as<T>();
    T* y = p.y.as<T>();
    pool_.run_ranges(n, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* source = table + ids[row] * d;
        for (std::int64_t i = 0; i < d; ++i) y[row * d + i] = T(A(p.scale) * A(source[i]));
      }
    });
  });
}

void CpuOps::embedding_backward(const EmbeddingBackward& p) {
  const std::int64_t d = p.grad_table.dim(1);
  require(p.grad_y.dim(1) == d, "embedding_backward", "widths differ", p.grad_y, p.grad_table);
  require_dtype("embedding_backward", DType::kI32, p.groups.ids, p.groups.begin, p.groups.rows);
  require_dtype("embedding_backward", work_dtype(p.grad_y.dtype), p.grad_table);
  for_dtype("embedding_backward", p.grad_y.dtype, [&]<typename T>() {
    using A = Work<T>;
    const std::int32_t* ids = p.groups.ids.as<std::int32_t>();
    const std::int32_t* begin = p.groups.begin.as<std::int32_t>();
    const std::int32_t* rows = p.groups.rows.as<std::int32_t>();
    const T* grad_y = p.grad_y.as<T>();
    A* table = p.grad_table.as<A>();
    pool_.run(p.groups.groups, [&](std::int64_t g) {
      A* out = table + ids[g] * d;
      constexpr std::int64_t kLanes = 64;  // columns at a time: the sum stays in registers
      for (std::int64_t first = 0; first < d; first += kLanes) {
        const std::int64_t width = std::min(kLanes, d - first);
        A sum[kLanes] = {};
        for (std::int32_t k = begin[g]; k < begin[g + 1]; ++k) {
          const T* source = grad_y + rows[k] * d + first;
          for (std::int64_t i = 0; i < width; ++i) sum[i] += A(source[i]);
        }
        for (std::int64_t i = 0; i < width; ++i) out[first + i] += A(p.scale) * sum[i];
      }
    });
  });
}

}  // namespace g2::cpu
