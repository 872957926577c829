// Calls of lm_head_loss, and its loss straight from the formula.
#pragma once

#include "tests/ops/cpu_ops_support.h"

namespace g2::test {

struct HeadOptions {
  double softcap = 30;
  double z_weight = 0;
  double grad_scale = 1;
  bool with_grad = true;
  std::size_t budget_bytes = std::size_t{1} << 30;
};

struct HeadResult {
  Array sums, loss, top1, grad_x, grad_w, flags;
  std::int32_t flag_bits() const { return flags->as<std::int32_t>()[0]; }
};

// Gradients are poison where with_grad is false.
inline HeadResult run_head(const Array& x,
                           const Array& w,
                           const std::vector<std::int32_t>& targets,
                           const HeadOptions& o) {
  const DType dtype = x->dtype, work = work_dtype(dtype);
  const std::int64_t n = x->dim(0), d = x->dim(1), v = w->dim(0);
  HeadResult r{Array(DType::kF64, {2}, {0, 0}),
               Array(work, {n}),
               Array(DType::kI32, {n}),
               Array(dtype, {n, d}),
               Array(work, {v, d}),
               integers({0})};
  const auto words = static_cast<std::int64_t>(
      ops().lm_head_workspace_bytes(dtype, n, d, v, o.budget_bytes, o.with_grad) / 4);
  const Array workspace(DType::kI32, {words}), labels = integers(targets);
  ops().lm_head_loss({.x = x,
                      .w = w,
                      .targets = labels,
                      .softcap = o.softcap,
                      .z_weight = o.z_weight,
                      .grad_scale = o.grad_scale,
                      .sums = r.sums,
                      .loss = r.loss,
                      .top1 = r.top1,
                      .grad_x = o.with_grad ? Tensor(r.grad_x) : Tensor(),
                      .grad_w = o.with_grad ? Tensor(r.grad_w) : Tensor(),
                      .accumulate_grad_w = false,
                      .flags = r.flags,
                      .workspace = workspace});
  return r;
}

// Loss (without z-loss) and z-loss of every row.
struct HeadLosses {
  std::vector<double> loss, z_loss;
};
inline HeadLosses expected_losses(const std::vector<double>& x,
                                  const std::vector<double>& w,
                                  const std::vector<std::int32_t>& targets,
                                  const HeadOptions& o) {
  const std::size_t n = targets.size(), d = x.size() / std::max<std::size_t>(n, 1),
                    v = w.size() / d;
  HeadLosses out;
  for (std::size_t row = 0; row < n; ++row) {
    std::vector<double> c(v);
    double largest = -INFINITY, sum = 0;
    for (std::size_t j = 0; j < v; ++j) {
      for (std::size_t i = 0; i < d; ++i) c[j] += x[row * d + i] * w[j * d + i];
      if (o.softcap != 0) c[j] = o.softcap * std::tanh(c[j] / o.softcap);
      largest = std::max(largest, c[j]);
    }
    for (const double value : c) sum += std::exp(value - largest);
    const double lse = largest + std::log(sum);
    const bool valid = targets[row] != kIgnoredTarget;
    out.loss.push_back(valid ? lse - c[targets[row]] : 0);
    out.z_loss.push_back(valid ? o.z_weight * lse * lse : 0);
  }
  return out;
}

}  // namespace g2::test
