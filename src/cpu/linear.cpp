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
             auto& scratch) {
  using A = Work<T>;
  A* wide = narrow_target<T>(y, scratch, 2);
  gemm<A>(pool,
          {.m = x.dim(0),
           .n = y.dim(1),
           .k = x.dim(1),
           .a = {widened<T>(pool, x, scratch, 0), x.dim(1)},
           .b = {widened<T>(pool, w, scratch, 1), w.dim(1), w_transposed},
           .c = wide,
           .c_ld = y.dim(1)});
  narrow<T>(pool, wide, y);
}

}  // namespace

void CpuOps::linear_forward(const LinearForward& p) {
  require(p.x.dim(1) == p.w.dim(1) && p.y.dim(1) == p.w.dim(0) && p.y.dim(0) == p.x.dim(0),
          "linear_forward",
          "need x [N, in], w [out, in], y [N, out]",
          p.x,
          p.w,
          p.y);
  require_dtype("linear_forward", p.x.dtype, p.w, p.y);
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
  require_dtype("linear_dgrad", p.grad_y.dtype, p.w, p.grad_x);
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
  require_dtype("linear_wgrad", p.x.dtype, p.grad_y);
  require_dtype("linear_wgrad", work_dtype(p.x.dtype), p.grad_w);
  for_dtype("linear_wgrad", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& memory = memory_->of<A>();
    gemm<A>(pool_,
            {.m = out,
             .n = in,
             .k = n,
             .a = {widened<T>(pool_, p.grad_y, memory, 0), out, true},
             .b = {widened<T>(pool_, p.x, memory, 1), in},
             .c = p.grad_w.as<A>(),
             .c_ld = in,
             .beta = p.accumulate ? A(1) : A(0)});
  });
}

}  // namespace g2::cpu
