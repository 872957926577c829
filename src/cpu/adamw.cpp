#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements a task handles

template <typename A, typename T>
void adamw_range(const Adamw& p, T* copy, std::int64_t begin, std::int64_t end) {
  A* master = p.master.as<A>();
  A* m = p.m.as<A>();
  A* v = p.v.as<A>();
  const A* grad = p.grad.as<A>();
  const A factor = A(*p.factor.as<double>());
  const A beta1 = A(p.beta1);
  const A beta2 = A(p.beta2);
  const A one_minus_beta1 = A(1 - p.beta1);
  const A one_minus_beta2 = A(1 - p.beta2);
  const A correction1 = A(1 / (1 - std::pow(p.beta1, static_cast<double>(p.step))));
  const A correction2 = A(1 / (1 - std::pow(p.beta2, static_cast<double>(p.step))));
  const A rate = A(p.learning_rate);
  const A decay = A(p.weight_decay);
  const A eps = A(p.eps);
  for (std::int64_t i = begin; i < end; ++i) {
    const A g = factor * grad[i];
    m[i] = beta1 * m[i] + one_minus_beta1 * g;
    v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
    const A step = m[i] * correction1 / (std::sqrt(v[i] * correction2) + eps);
    master[i] -= rate * (step + decay * master[i]);
  }
  if (copy != nullptr) {
    for (std::int64_t i = begin; i < end; ++i) copy[i] = T(master[i]);
  }
}

}  // namespace

void CpuOps::adamw(const Adamw& p) {
  const std::int64_t n = p.master.size();
  require(
      p.m.size() == n && p.v.size() == n && p.grad.size() == n && (!p.copy || p.copy.size() == n),
      "adamw",
      "sizes differ",
      p.master,
      p.m,
      p.v,
      p.grad);
  require_dtype("adamw", work_dtype(p.master.dtype), p.master, p.m, p.v, p.grad);
  require_dtype("adamw", p.master.dtype == DType::kF64 ? DType::kF64 : DType::kBF16, p.copy);
  require_dtype("adamw", DType::kF64, p.factor);
  require(p.step >= 1, "adamw", "step counts from 1", p.master);
  pool_.run_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (p.master.dtype == DType::kF64) {
      adamw_range<double, double>(p, p.copy ? p.copy.as<double>() : nullptr, begin, end);
    } else {
      adamw_range<float, bf16>(p, p.copy ? p.copy.as<bf16>() : nullptr, begin, end);
    }
  });
}

}  // namespace g2::cpu
