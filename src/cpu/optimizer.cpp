#include <cmath>

#include "base/philox.h"
#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/lanes.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;

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

template <typename From, typename To>
void cast_range(const Cast& p, std::int64_t begin, std::int64_t end) {
  const From* x = p.x.as<From>();
  To* y = p.y.as<To>();
  for (std::int64_t i = begin; i < end; ++i) y[i] = To(Work<From>(x[i]));
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
  require(p.step >= 1, "adamw", "step counts from 1", p.master);
  pool_.run_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (p.master.dtype == DType::kF64) {
      adamw_range<double, double>(p, p.copy ? p.copy.as<double>() : nullptr, begin, end);
    } else {
      adamw_range<float, bf16>(p, p.copy ? p.copy.as<bf16>() : nullptr, begin, end);
    }
  });
}

void CpuOps::block_sums_of_squares(const BlockSumsOfSquares& p) {
  const std::int64_t n = p.x.size();
  require(p.block_sums.size() == (n + kNormBlock - 1) / kNormBlock,
          "block_sums_of_squares",
          "need one sum a block",
          p.x,
          p.block_sums);
  for_dtype("block_sums_of_squares", p.x.dtype, [&]<typename T>() {
    pool_.run_ranges(n, kNormBlock, [&](std::int64_t begin, std::int64_t end) {
      const T* x = p.x.as<T>() + begin;
      p.block_sums.as<double>()[begin / kNormBlock] = lane_sum<double>(
          end - begin, [&](std::int64_t i) { return double(x[i]) * double(x[i]); });
    });
  });
}

void CpuOps::clip_factor(const ClipFactor& p) {
  double sum = 0;
  for (std::int64_t b = 0; b < p.block_sums.size(); ++b) sum += p.block_sums.as<double>()[b];
  const double norm = std::sqrt(sum);
  *p.norm.as<double>() = norm;
  *p.factor.as<double>() = p.max_norm > 0 && norm > p.max_norm ? p.max_norm / norm : 1;
}

void CpuOps::cast(const Cast& p) {
  const std::int64_t n = p.x.size();
  require(p.y.size() == n, "cast", "sizes differ", p.x, p.y);
  for_dtype("cast", p.x.dtype, [&]<typename From>() {
    for_dtype("cast", p.y.dtype, [&]<typename To>() {
      pool_.run_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        cast_range<From, To>(p, begin, end);
      });
    });
  });
}

void CpuOps::fill_normal(const FillNormal& p) {
  for_dtype("fill_normal", p.y.dtype, [&]<typename T>() {
    pool_.run_ranges(p.y.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end;
           i += 4) {  // kGrain is a multiple of the block's 4 words
        const base::PhiloxWords words = base::random_block(
            p.seed, base::RandomPurpose::kInit, p.stream, static_cast<std::uint64_t>(i / 4));
        for (std::int64_t k = 0; k < 4 && i + k < end; ++k) {
          const double value = p.std_dev * base::normal_quantile(base::uniform_open(words[k]));
          p.y.as<T>()[i + k] = T(static_cast<float>(value));
        }
      }
    });
  });
}

}  // namespace g2::cpu
