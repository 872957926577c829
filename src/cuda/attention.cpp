#include "kernels/attention.h"

#include "cuda/cuda_ops.h"
#include "cuda/dispatch.h"

namespace g2::cuda {
namespace {

void check_shapes(const char* op,
                  const AttentionShape& s,
                  const Tensor& qkv,
                  const Tensor& lo,
                  const Tensor& o,
                  const Tensor& lse) {
  const std::int64_t n = qkv.dim(0);
  require(s.kv_heads > 0 && s.q_heads % s.kv_heads == 0 &&
              qkv.dim(1) == (s.q_heads + 2 * s.kv_heads) * s.head_dim && lo.dim(0) == n &&
              o.dim(0) == n && o.dim(1) == s.q_heads * s.head_dim && lse.size() == s.q_heads * n,
          op,
          "need qkv [N, (H + 2K) h], lo [N], o [N, H h], lse [H, N], H a multiple of K",
          qkv,
          lo,
          o,
          lse);
  require_dtype(op, qkv.dtype, o);
  require_dtype(op, work_dtype(qkv.dtype), lse);
  require_dtype(op, DType::kI32, lo);
}

kernels::AttentionShape kernel_shape(const AttentionShape& s, std::int64_t tokens) {
  return {.tokens = tokens,
          .q_heads = static_cast<int>(s.q_heads),
          .kv_heads = static_cast<int>(s.kv_heads),
          .head_dim = static_cast<int>(s.head_dim),
          .scale = static_cast<float>(s.scale),
          .softcap = static_cast<float>(s.softcap)};
}

}  // namespace

void CudaOps::attention_forward(const AttentionForward& p) {
  constexpr const char* kOp = "attention_forward";
  check_shapes(kOp, p.shape, p.qkv, p.lo, p.o, p.lse);
  for_dtype(kOp, p.qkv.dtype, [&]<typename T>() {
    launched(kernels::attention_forward<T>({.shape = kernel_shape(p.shape, p.qkv.dim(0)),
                                            .qkv = pointer<T>(p.qkv),
                                            .lo = pointer<int>(p.lo),
                                            .o = pointer<T>(p.o),
                                            .lse = pointer<float>(p.lse)},
                                           device_.stream()),
             kOp,
             p.qkv);
  });
}

void CudaOps::attention_backward(const AttentionBackward& p) {
  constexpr const char* kOp = "attention_backward";
  check_shapes(kOp, p.shape, p.qkv, p.lo, p.o, p.lse);
  require(p.grad_o.size() == p.o.size() && p.grad_qkv.size() == p.qkv.size() &&
              p.hi.dim(0) == p.qkv.dim(0) && p.delta.size() == p.lse.size(),
          kOp,
          "gradients must have the shapes of their tensors",
          p.grad_o,
          p.grad_qkv,
          p.hi,
          p.delta);
  require_dtype(kOp, p.qkv.dtype, p.grad_o, p.grad_qkv);
  require_dtype(kOp, work_dtype(p.qkv.dtype), p.delta);
  require_dtype(kOp, DType::kI32, p.hi);
  for_dtype(kOp, p.qkv.dtype, [&]<typename T>() {
    launched(kernels::attention_backward<T>({.shape = kernel_shape(p.shape, p.qkv.dim(0)),
                                             .qkv = pointer<T>(p.qkv),
                                             .o = pointer<T>(p.o),
                                             .lse = pointer<float>(p.lse),
                                             .grad_o = pointer<T>(p.grad_o),
                                             .lo = pointer<int>(p.lo),
                                             .hi = pointer<int>(p.hi),
                                             .grad_qkv = pointer<T>(p.grad_qkv),
                                             .delta = pointer<float>(p.delta)},
                                            device_.stream()),
             kOp,
             p.qkv);
  });
}

}  // namespace g2::cuda
