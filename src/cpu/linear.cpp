#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/memory.h"
#include "cpu/widen.h"

namespace g2::cpu {
namespace {

// y[N, columns] = cast_T(x op(w)), x [N, inner].
template <typename T>
void product(base::ThreadPool& pool,
             const Tensor& x,
             const Tensor& w,
             bool w_transposed,
             const Tensor& y,
             auto& memory) {
  using A = Work<T>;
  const std::int64_t n = x.dim(0);
  const std::int64_t inner = x.dim(1);
  const std::int64_t columns = y.dim(1);
  const Operand<A> a{widened<T>(pool, x, memory, 0), inner, false};
  const Operand<A> b{widened<T>(pool, w, memory, 1), w.dim(1), w_transposed};
  if constexpr (std::is_same_v<T, A>) {
    gemm<A>(pool, n, columns, inner, 1, a, b, 0, y.as<T>(), columns);
  } else {
    A* wide = memory.get(2, static_cast<std::size_t>(y.size()));
    gemm<A>(pool, n, columns, inner, 1, a, b, 0, wide, columns);
    pool.run_ranges(y.size(), kCastGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y.as<T>()[i] = T(wide[i]);
    });
  }
}

}  // namespace

void CpuOps::linear_forward(const LinearForward& p) {
  require(p.x.dim(1) == p.w.dim(1) && p.y.dim(1) == p.w.dim(0) && p.y.dim(0) == p.x.dim(0),
          "linear_forward",
          "need x [N, in], w [out, in], y [N, out]",
          p.x,
          p.w,
          p.y);
  for_dtype("linear_forward", p.x.dtype, [&]<typename T>() {
    product<T>(pool_, p.x, p.w, true, p.y, memory_->of<Work<T>>());
  });
}

void CpuOps::linear_dgrad(const LinearDgrad& p) {
  require(p.grad_y.dim(1) == p.w.dim(0) && p.grad_x.dim(1) == p.w.dim(1) &&
              p.grad_x.dim(0) == p.grad_y.dim(0),
          "linear_dgrad",
          "need grad_y [N, out], w [out, in], grad_x [N, in]",
          p.grad_y,
          p.w,
          p.grad_x);
  for_dtype("linear_dgrad", p.grad_y.dtype, [&]<typename T>() {
    product<T>(pool_, p.grad_y, p.w, false, p.grad_x, memory_->of<Work<T>>());
  });
}

void CpuOps::linear_wgrad(const LinearWgrad& p) {
  const std::int64_t n = p.x.dim(0);
  const std::int64_t in = p.x.dim(1);
  const std::int64_t out = p.grad_y.dim(1);
  require(p.grad_y.dim(0) == n && p.grad_w.dim(0) == out && p.grad_w.dim(1) == in,
          "linear_wgrad",
          "need grad_y [N, out], x [N, in], grad_w [out, in]",
          p.grad_y,
          p.x,
          p.grad_w);
  for_dtype("linear_wgrad", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& memory = memory_->of<A>();
    const Operand<A> a{widened<T>(pool_, p.grad_y, memory, 0), out, true};
    const Operand<A> b{widened<T>(pool_, p.x, memory, 1), in, false};
    gemm<A>(pool_, out, in, n, 1, a, b, p.accumulate ? A(1) : A(0), p.grad_w.as<A>(), in);
  });
}

}  // namespace g2::cpu
