#include "cuda/cuda_ops.h"
#include "cuda/dispatch.h"

namespace g2::cuda {
namespace {

void require_product_dtype(const char* op, DType dtype) {
  for_dtype(op, dtype, []<typename T>() {});
}

}  // namespace

void CudaOps::linear_forward(const LinearForward& p) {
  constexpr const char* kOp = "linear_forward";
  const std::int64_t in = p.w.dim(1);
  const std::int64_t out = p.w.dim(0);
  require(p.x.dim(1) == in && p.y.dim(1) == out && p.y.dim(0) == p.x.dim(0),
          kOp,
          "need x [N, in], w [out, in], y [N, out]",
          p.x,
          p.w,
          p.y);
  require_dtype(kOp, p.x.dtype, p.w, p.y);
  require_product_dtype(kOp, p.x.dtype);
  if (p.y.size() == 0) return;
  matmul_.run({.m = p.x.dim(0),
               .n = out,
               .k = in,
               .in = p.x.dtype,
               .out = p.y.dtype,
               .a = {p.x.data, in},
               .b = {p.w.data, in, true},
               .c = p.y.data,
               .c_ld = out});
}

void CudaOps::linear_dgrad(const LinearDgrad& p) {
  constexpr const char* kOp = "linear_dgrad";
  const std::int64_t in = p.w.dim(1);
  const std::int64_t out = p.w.dim(0);
  require(p.grad_y.dim(1) == out && p.grad_x.dim(1) == in && p.grad_x.dim(0) == p.grad_y.dim(0),
          kOp,
          "need grad_y [N, out], w [out, in], grad_x [N, in]",
          p.grad_y,
          p.w,
          p.grad_x);
  require_dtype(kOp, p.grad_y.dtype, p.w, p.grad_x);
  require_product_dtype(kOp, p.grad_y.dtype);
  if (p.grad_x.size() == 0) return;
  matmul_.run({.m = p.grad_y.dim(0),
               .n = in,
               .k = out,
               .in = p.grad_y.dtype,
               .out = p.grad_x.dtype,
               .a = {p.grad_y.data, out},
               .b = {p.w.data, in},
               .c = p.grad_x.data,
               .c_ld = in});
}

void CudaOps::linear_wgrad(const LinearWgrad& p) {
  constexpr const char* kOp = "linear_wgrad";
  const std::int64_t n = p.x.dim(0);
  const std::int64_t in = p.x.dim(1);
  const std::int64_t out = p.grad_y.dim(1);
  require(p.grad_y.dim(0) == n && p.grad_w.dim(0) == out && p.grad_w.dim(1) == in,
          kOp,
          "need grad_y [N, out], x [N, in], grad_w [out, in]",
          p.grad_y,
          p.x,
          p.grad_w);
  require_dtype(kOp, p.x.dtype, p.grad_y);
  require_dtype(kOp, work_dtype(p.x.dtype), p.grad_w);
  require_product_dtype(kOp, p.x.dtype);
  if (n == 0) {  // a sum over no rows
    if (!p.accumulate) device_.fill_zero(p.grad_w.data, p.grad_w.bytes());
    return;
  }
  matmul_.run({.m = out,
               .n = in,
               .k = n,
               .in = p.x.dtype,
               .out = p.grad_w.dtype,
               .a = {p.grad_y.data, out, true},
               .b = {p.x.data, in},
               .c = p.grad_w.data,
               .c_ld = in,
               .accumulate = p.accumulate});
}

}  // namespace g2::cuda
