#include <algorithm>
#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/lanes.h"
#include "cpu/memory.h"

namespace g2::cpu {
namespace {

template <typename T>
Work<T> inverse_rms(const T* x, std::int64_t d, double eps) {
  using A = Work<T>;
  const A sum = lane_sum<A>(d, [&](std::int64_t i) { return A(x[i]) * A(x[i]); });
  return A(1) / std::sqrt(sum / A(d) + A(eps));
}

template <typename T>
void normalise(const T* x, const T* w, Work<T> r, T* y, std::int64_t d) {
  using A = Work<T>;
  for (std::int64_t i = 0; i < d; ++i) y[i] = T(A(x[i]) * r * (A(1) + A(w[i])));
}

// Rows whose contributions to grad_w are summed in order before the blocks are: fixed by N alone.
constexpr std::int64_t kGradBlock = 64;

}  // namespace

void CpuOps::rmsnorm_forward(const RmsnormForward& p) {
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  require(
      p.w.dim(0) == d && p.y.size() == n * d, "rmsnorm_forward", "widths differ", p.x, p.w, p.y);
  require_dtype("rmsnorm_forward", p.x.dtype, p.w, p.y);
  require_dtype("rmsnorm_forward", work_dtype(p.x.dtype), p.r);
  for_dtype("rmsnorm_forward", p.x.dtype, [&]<typename T>() {
    const T* x = p.x.as<T>();
    const T* w = p.w.as<T>();
    T* y = p.y.as<T>();
    auto* r = p.r.as<Work<T>>();
    pool_.run_ranges(n, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        r[row] = inverse_rms(x + row * d, d, p.eps);
        normalise(x + row * d, w, r[row], y + row * d, d);
      }
    });
  });
}

void CpuOps::rmsnorm_add_forward(const RmsnormAddForward& p) {
  const std::int64_t n = p.branch.dim(0);
  const std::int64_t d = p.branch.dim(1);
  require(p.residual.size() == n * d && p.sum.size() == n * d && p.y.size() == n * d,
          "rmsnorm_add_forward",
          "shapes differ",
          p.branch,
          p.residual,
          p.sum,
          p.y);
  require_dtype("rmsnorm_add_forward", p.branch.dtype, p.w_post, p.residual, p.w_pre, p.sum, p.y);
  require_dtype("rmsnorm_add_forward", work_dtype(p.branch.dtype), p.r_post, p.r_pre);
  for_dtype("rmsnorm_add_forward", p.branch.dtype, [&]<typename T>() {
    using A = Work<T>;
    const T* w_post = p.w_post.as<T>();
    const T* w_pre = p.w_pre.as<T>();
    A* r_post = p.r_post.as<A>();
    A* r_pre = p.r_pre.as<A>();
    pool_.run_ranges(n, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* branch = p.branch.as<T>() + row * d;
        const T* residual = p.residual.as<T>() + row * d;
        T* sum = p.sum.as<T>() + row * d;
        const A r = inverse_rms(branch, d, p.eps);
        r_post[row] = r;
        for (std::int64_t i = 0; i < d; ++i) {
          sum[i] = T(A(residual[i]) + A(branch[i]) * r * (A(1) + A(w_post[i])));
        }
        r_pre[row] = inverse_rms(sum, d, p.eps);
        normalise(sum, w_pre, r_pre[row], p.y.as<T>() + row * d, d);
      }
    });
  });
}

void CpuOps::rmsnorm_backward(const RmsnormBackward& p) {
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  require(p.grad_y.size() == n * d && p.grad_x.size() == n * d && p.grad_w.size() == d,
          "rmsnorm_backward",
          "shapes differ",
          p.grad_y,
          p.x,
          p.grad_x,
          p.grad_w);
  require_dtype("rmsnorm_backward", p.x.dtype, p.grad_y, p.w, p.residual, p.grad_x);
  require_dtype("rmsnorm_backward", work_dtype(p.x.dtype), p.r, p.grad_w);
  for_dtype("rmsnorm_backward", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    const T* w = p.w.as<T>();
    const std::int64_t blocks = (n + kGradBlock - 1) / kGradBlock;
    A* partial = memory_->of<A>().get(0, static_cast<std::size_t>(blocks * d));
    pool_.run(blocks, [&](std::int64_t block) {
      A* grad_w = partial + block * d;
      std::fill(grad_w, grad_w + d, A(0));
      for (std::int64_t row = block * kGradBlock; row < std::min(n, (block + 1) * kGradBlock);
           ++row) {
        const T* x = p.x.as<T>() + row * d;
        const T* grad_y = p.grad_y.as<T>() + row * d;
        T* grad_x = p.grad_x.as<T>() + row * d;
        const A r = p.r.as<A>()[row];
        const A mean =
            lane_sum<A>(d,
                        [&](std::int64_t i) { return A(grad_y[i]) * (A(1) + A(w[i])) * A(x[i]); }) /
            A(d);
        const A slope = r * r * r * mean;
        for (std::int64_t i = 0; i < d; ++i) grad_w[i] += A(grad_y[i]) * A(x[i]) * r;
        if (p.residual) {
          const T* residual = p.residual.as<T>() + row * d;
          for (std::int64_t i = 0; i < d; ++i) {
            grad_x[i] = T(A(residual[i]) + (r * A(grad_y[i]) * (A(1) + A(w[i])) - A(x[i]) * slope));
          }
        } else {
          for (std::int64_t i = 0; i < d; ++i) {
            grad_x[i] = T(r * A(grad_y[i]) * (A(1) + A(w[i])) - A(x[i]) * slope);
          }
        }
      }
    });
    A* grad_w = p.grad_w.as<A>();
    if (!p.accumulate_grad_w) std::fill(grad_w, grad_w + d, A(0));
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t i = 0; i < d; ++i) grad_w[i] += partial[block * d + i];
    }
  });
}

}  // namespace g2::cpu
