// Ops over rows of activations: embedding, norms, RoPE, GeGLU.
#include "cuda/cuda_ops.h"
#include "cuda/dispatch.h"
#include "kernels/embedding.h"
#include "kernels/geglu.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"

namespace g2::cuda {

void CudaOps::embedding_forward(const EmbeddingForward& p) {
  constexpr const char* kOp = "embedding_forward";
  const std::int64_t n = p.ids.dim(0);
  const std::int64_t d = p.table.dim(1);
  require(p.y.dim(0) == n && p.y.dim(1) == d, kOp, "y must be [N, d]", p.ids, p.table, p.y);
  require_dtype(kOp, DType::kI32, p.ids);
  require_dtype(kOp, p.table.dtype, p.y);
  for_dtype(kOp, p.table.dtype, [&]<typename T>() {
    launched(kernels::embedding_forward<T>({.ids = pointer<int>(p.ids),
                                            .table = pointer<T>(p.table),
                                            .scale = static_cast<float>(p.scale),
                                            .y = pointer<T>(p.y),
                                            .tokens = n,
                                            .hidden = static_cast<int>(d)},
                                           device_.stream()),
             kOp,
             p.ids,
             p.table);
  });
}

void CudaOps::embedding_backward(const EmbeddingBackward& p) {
  constexpr const char* kOp = "embedding_backward";
  const std::int64_t d = p.grad_table.dim(1);
  require(p.grad_y.dim(1) == d, kOp, "widths differ", p.grad_y, p.grad_table);
  require_dtype(kOp, DType::kI32, p.groups.ids, p.groups.begin, p.groups.rows);
  require_dtype(kOp, work_dtype(p.grad_y.dtype), p.grad_table);
  for_dtype(kOp, p.grad_y.dtype, [&]<typename T>() {
    launched(kernels::embedding_backward<T>({.group_ids = pointer<int>(p.groups.ids),
                                             .begin = pointer<int>(p.groups.begin),
                                             .rows = pointer<int>(p.groups.rows),
                                             .grad_y = pointer<T>(p.grad_y),
                                             .scale = static_cast<float>(p.scale),
                                             .grad_table = pointer<float>(p.grad_table),
                                             .groups = p.groups.groups,
                                             .hidden = static_cast<int>(d)},
                                            device_.stream()),
             kOp,
             p.grad_y,
             p.grad_table);
  });
}

void CudaOps::rmsnorm_forward(const RmsnormForward& p) {
  constexpr const char* kOp = "rmsnorm_forward";
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  require(p.w.dim(0) == d && p.y.size() == n * d, kOp, "widths differ", p.x, p.w, p.y);
  require_dtype(kOp, p.x.dtype, p.w, p.y);
  require_dtype(kOp, work_dtype(p.x.dtype), p.r);
  for_dtype(kOp, p.x.dtype, [&]<typename T>() {
    launched(kernels::rmsnorm_forward<T>({.x = pointer<T>(p.x),
                                          .w = pointer<T>(p.w),
                                          .y = pointer<T>(p.y),
                                          .r = pointer<float>(p.r),
                                          .tokens = n,
                                          .hidden = static_cast<int>(d),
                                          .eps = static_cast<float>(p.eps)},
                                         device_.stream()),
             kOp,
             p.x);
  });
}

void CudaOps::rmsnorm_add_forward(const RmsnormAddForward& p) {
  constexpr const char* kOp = "rmsnorm_add_forward";
  const std::int64_t n = p.branch.dim(0);
  const std::int64_t d = p.branch.dim(1);
  require(p.residual.size() == n * d && p.sum.size() == n * d && p.y.size() == n * d &&
              p.w_post.dim(0) == d && p.w_pre.dim(0) == d,
          kOp,
          "shapes differ",
          p.branch,
          p.residual,
          p.sum,
          p.y);
  require_dtype(kOp, p.branch.dtype, p.w_post, p.residual, p.w_pre, p.sum, p.y);
  require_dtype(kOp, work_dtype(p.branch.dtype), p.r_post, p.r_pre);
  for_dtype(kOp, p.branch.dtype, [&]<typename T>() {
    launched(kernels::rmsnorm_add_forward<T>({.branch = pointer<T>(p.branch),
                                              .w_post = pointer<T>(p.w_post),
                                              .residual = pointer<T>(p.residual),
                                              .w_pre = pointer<T>(p.w_pre),
                                              .sum = pointer<T>(p.sum),
                                              .y = pointer<T>(p.y),
                                              .r_post = pointer<float>(p.r_post),
                                              .r_pre = pointer<float>(p.r_pre),
                                              .tokens = n,
                                              .hidden = static_cast<int>(d),
                                              .eps = static_cast<float>(p.eps)},
                                             device_.stream()),
             kOp,
             p.branch);
  });
}

void CudaOps::rmsnorm_backward(const RmsnormBackward& p) {
  constexpr const char* kOp = "rmsnorm_backward";
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  require(p.grad_y.size() == n * d && p.grad_x.size() == n * d && p.grad_w.size() == d &&
              p.w.dim(0) == d,
          kOp,
          "shapes differ",
          p.grad_y,
          p.x,
          p.grad_x,
          p.grad_w);
  require_dtype(kOp, p.x.dtype, p.grad_y, p.w, p.residual, p.grad_x);
  require_dtype(kOp, work_dtype(p.x.dtype), p.r, p.grad_w);
  const int hidden = static_cast<int>(d);
  grow(norm_workspace_, kernels::rmsnorm_backward_workspace_bytes(n, hidden));
  for_dtype(kOp, p.x.dtype, [&]<typename T>() {
    launched(
        kernels::rmsnorm_backward<T>({.grad_y = pointer<T>(p.grad_y),
                                      .x = pointer<T>(p.x),
                                      .w = pointer<T>(p.w),
                                      .r = pointer<float>(p.r),
                                      .residual = pointer<T>(p.residual),
                                      .grad_x = pointer<T>(p.grad_x),
                                      .grad_w = pointer<float>(p.grad_w),
                                      .accumulate_grad_w = p.accumulate_grad_w,
                                      .workspace = reinterpret_cast<float*>(norm_workspace_.data()),
                                      .tokens = n,
                                      .hidden = hidden},
                                     device_.stream()),
        kOp,
        p.x);
  });
}

void CudaOps::rope(const Rope& p) {
  constexpr const char* kOp = "rope";
  const std::int64_t n = p.x.dim(0);
  const std::int64_t head_dim = p.table.dim(1);
  require(p.positions.dim(0) == n && head_dim % 2 == 0 && p.heads * head_dim <= p.x.dim(1),
          kOp,
          "need x [N, Q], positions [N], table [P, h], h even, heads h <= Q",
          p.x,
          p.positions,
          p.table);
  require_dtype(kOp, work_dtype(p.x.dtype), p.table);
  require_dtype(kOp, DType::kI32, p.positions);
  for_dtype(kOp, p.x.dtype, [&]<typename T>() {
    launched(kernels::rope<T>({.x = pointer<T>(p.x),
                               .positions = pointer<int>(p.positions),
                               .table = pointer<float>(p.table),
                               .tokens = n,
                               .row_width = static_cast<int>(p.x.dim(1)),
                               .heads = static_cast<int>(p.heads),
                               .head_dim = static_cast<int>(head_dim),
                               .inverse = p.inverse},
                              device_.stream()),
             kOp,
             p.x);
  });
}

void CudaOps::geglu_forward(const GegluForward& p) {
  constexpr const char* kOp = "geglu_forward";
  const std::int64_t n = p.m.dim(0);
  const std::int64_t f = p.m.dim(1);
  require(p.gate_up.dim(0) == n && p.gate_up.dim(1) == 2 * f,
          kOp,
          "gate_up must be [N, 2f]",
          p.gate_up,
          p.m);
  require_dtype(kOp, p.m.dtype, p.gate_up);
  for_dtype(kOp, p.m.dtype, [&]<typename T>() {
    launched(kernels::geglu_forward<T>({.gate_up = pointer<T>(p.gate_up),
                                        .m = pointer<T>(p.m),
                                        .tokens = n,
                                        .width = static_cast<int>(f)},
                                       device_.stream()),
             kOp,
             p.gate_up);
  });
}

void CudaOps::geglu_backward(const GegluBackward& p) {
  constexpr const char* kOp = "geglu_backward";
  const std::int64_t n = p.grad_m.dim(0);
  const std::int64_t f = p.grad_m.dim(1);
  require(p.gate_up.size() == 2 * n * f && p.grad_gate_up.size() == 2 * n * f,
          kOp,
          "gate_up must be [N, 2f]",
          p.gate_up,
          p.grad_m,
          p.grad_gate_up);
  require_dtype(kOp, p.grad_m.dtype, p.gate_up, p.grad_gate_up);
  for_dtype(kOp, p.grad_m.dtype, [&]<typename T>() {
    launched(kernels::geglu_backward<T>({.grad_m = pointer<T>(p.grad_m),
                                         .gate_up = pointer<T>(p.gate_up),
                                         .grad_gate_up = pointer<T>(p.grad_gate_up),
                                         .tokens = n,
                                         .width = static_cast<int>(f)},
                                        device_.stream()),
             kOp,
             p.gate_up);
  });
}

}  // namespace g2::cuda
