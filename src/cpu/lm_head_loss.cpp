// The head, soft cap and cross-entropy in four steps a chunk of valid rows: logits, one pass over
// them in place, and the two gradient products. The derivation of the pass stands in
// docs/numerics.md.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/lanes.h"
#include "cpu/memory.h"
#include "cpu/simd_math.h"
#include "cpu/widen.h"

namespace g2::cpu {
namespace {

// Chunks are whole row tiles of the product, so a row's logits do not depend on the chunk size.
constexpr std::int64_t kChunkRows = 128;
constexpr std::int64_t kLogitColumns = 1024;
// Up to this cap e^(c - cap) stays a normal float for any logit, so no row maximum is needed.
constexpr double kLargestOffsetCap = 36;
constexpr double kSaturated = 1e-4;  // LossFlag::kSaturatedTarget

template <typename A>
struct RowResult {
  A loss, z_loss;
  A grad_factor;  // r: dz_j = r E_j
  std::int32_t flags;
  std::int32_t top1;
};

std::int64_t chunk_elements(std::int64_t hidden, std::int64_t vocab) {
  return vocab + 2 * hidden;  // logits, gathered x, product before it is scattered
}

std::int64_t chunk_rows(const LmHeadLoss& p, std::size_t element_bytes) {
  const auto bytes = static_cast<std::int64_t>(p.workspace.bytes());
  const std::int64_t row =
      chunk_elements(p.x.dim(1), p.w.dim(0)) * static_cast<std::int64_t>(element_bytes);
  return bytes / row / kChunkRows * kChunkRows;
}

// Capped value c and 1 - t^2 of a logit, without cancellation: q = e^(-2|u|), u = z / cap.
template <typename A>
struct Capped {
  A below_cap;  // cap - c
  A slope;      // 1 - t^2
};
template <typename A>
Capped<A> capped(A z, A inverse_cap, A cap) {
  const A u = z * inverse_cap;
  const A q = fast_exp(A(-2) * std::abs(u));
  const A s = A(1) / (A(1) + q);
  return {A(2) * cap * (u >= 0 ? q * s : s), A(4) * q * s * s};
}

// loss = log(1 + R / e_y), from whichever form keeps its digits. `gap` = offset - c_y.
template <typename A>
A cross_entropy(A others, A target, A gap) {
  constexpr A kFar = 60;
  return gap < kFar ? std::log1p(others / target) : gap + std::log(others + target);
}

// One row: z [V] becomes E (rounded to T), so that dz_j = grad_factor E_j.
template <typename T>
RowResult<Work<T>> pass(const LmHeadLoss& p, Work<T>* z, std::int32_t y, bool with_grad) {
  using A = Work<T>;
  const std::int64_t v = p.w.dim(0);
  const A cap = A(p.softcap);
  RowResult<A> row{};
  const A z_y = z[y];
  A largest = 0;
  std::int32_t wins = 1;
  for (std::int64_t j = 0; j < v; ++j) largest = std::max(largest, std::abs(z[j]));
  bool finite = std::isfinite(largest);
  for (std::int64_t j = 0; j < v; ++j) finite &= z[j] == z[j];
  for (std::int64_t j = 0; j < y; ++j) wins &= z[j] < z_y ? 1 : 0;
  for (std::int64_t j = y + 1; j < v; ++j) wins &= z[j] <= z_y ? 1 : 0;
  row.top1 = wins;
  if (!finite) row.flags |= kNonFiniteLogit;

  A offset = cap;  // subtracted from every capped logit before exp
  if (cap == 0 || p.softcap > kLargestOffsetCap) {
    offset = *std::max_element(z, z + v);
    if (cap != 0) offset = cap * fast_tanh(offset / cap);
  }
  A target = 0, slope_y = 1, gap = 0;
  if (cap == 0) {
    gap = offset - z_y;
    for (std::int64_t j = 0; j < v; ++j) z[j] = fast_exp(z[j] - offset);
    target = z[y];
    z[y] = 0;
  } else {
    const Capped<A> at_y = capped(z_y, A(1) / cap, cap);
    gap = at_y.below_cap - (cap - offset);
    slope_y = at_y.slope;
    target = fast_exp(-gap);
  }
  A others = 0;
  if (cap == 0) {
    others = lane_sum<A>(v, [&](std::int64_t j) { return z[j]; });
  } else {
    const A inverse = A(1) / cap;
    const A shift = cap - offset;
    const auto term = [&](std::int64_t j) {
      const Capped<A> c = capped(z[j], inverse, cap);
      const A e = fast_exp(shift - c.below_cap);
      z[j] = e * c.slope;
      return e;
    };
    A lanes[2] = {lane_sum<A>(y, term), 0};
    lanes[1] = lane_sum<A>(v - y - 1, [&](std::int64_t j) { return term(y + 1 + j); });
    others = lanes[0] + lanes[1];
  }
  const A sum = others + target;
  const A lse = offset + std::log(sum);
  row.loss = cross_entropy(others, target, gap);
  row.z_loss = A(p.z_weight) * lse * lse;
  if (!std::isfinite(row.loss)) row.flags |= kNonFiniteLoss;
  if (slope_y < A(kSaturated)) row.flags |= kSaturatedTarget;
  if (!with_grad) return row;
  const A k = A(2 * p.z_weight) * lse;
  row.grad_factor = A(p.grad_scale) * (A(1) + k) / sum;
  z[y] = (k * sum / (A(1) + k) - others) * slope_y;
  if constexpr (!std::is_same_v<T, A>) {
    for (std::int64_t j = 0; j < v; ++j) z[j] = A(T(z[j]));
  }
  return row;
}

std::vector<std::int32_t> valid_rows(const Tensor& targets, std::int64_t vocab) {
  std::vector<std::int32_t> rows;
  for (std::int64_t n = 0; n < targets.dim(0); ++n) {
    const std::int32_t y = targets.as<std::int32_t>()[n];
    if (y == kIgnoredTarget) continue;
    if (y < 0 || y >= vocab) {
      throw base::DataError(base::cat("lm_head_loss: target ",
                                      y,
                                      " of row ",
                                      n,
                                      " is not in [0, ",
                                      vocab,
                                      ") and not ",
                                      kIgnoredTarget));
    }
    rows.push_back(static_cast<std::int32_t>(n));
  }
  return rows;
}

template <typename A>
void clear_ignored(const LmHeadLoss& p) {
  const std::int64_t n = p.targets.dim(0);
  for (std::int64_t row = 0; row < n; ++row) {
    if (p.targets.as<std::int32_t>()[row] != kIgnoredTarget) continue;
    if (p.loss) p.loss.as<A>()[row] = 0;
    if (p.top1) p.top1.as<std::int32_t>()[row] = 0;
    if (p.grad_x) {
      const std::size_t bytes = p.grad_x.bytes() / static_cast<std::size_t>(n);
      std::fill_n(static_cast<std::byte*>(p.grad_x.data) + static_cast<std::size_t>(row) * bytes,
                  bytes,
                  std::byte{0});
    }
  }
}

template <typename T>
void run(const LmHeadLoss& p, base::ThreadPool& pool, auto& memory) {
  using A = Work<T>;
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  const bool with_grad = static_cast<bool>(p.grad_x);
  const std::vector<std::int32_t> rows = valid_rows(p.targets, v);
  const auto valid = static_cast<std::int64_t>(rows.size());
  clear_ignored<A>(p);
  if (with_grad && valid == 0 && !p.accumulate_grad_w) std::fill_n(p.grad_w.as<A>(), v * d, A(0));

  const A* w = widened<T>(pool, p.w, memory, 1);
  const std::int64_t chunk = chunk_rows(p, sizeof(A));
  require(chunk > 0,
          "lm_head_loss",
          "the workspace is smaller than lm_head_workspace_bytes()",
          p.workspace);
  A* logits = static_cast<A*>(p.workspace.data);
  A* x = logits + chunk * v;
  A* product = x + chunk * d;
  std::vector<RowResult<A>> results(static_cast<std::size_t>(std::min(chunk, valid)));
  double* sums = p.sums.as<double>();
  for (std::int64_t first = 0; first < valid; first += chunk) {
    const std::int64_t m = std::min(chunk, valid - first);
    const std::int32_t* chunk_row = rows.data() + first;
    pool.run_ranges(m, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* source = p.x.as<T>() + chunk_row[i] * d;
        for (std::int64_t c = 0; c < d; ++c) x[i * d + c] = A(source[c]);
      }
    });
    // Whole tiles only: rows beyond m hold old values whose products nobody reads.
    const std::int64_t padded = (m + kChunkRows - 1) / kChunkRows * kChunkRows;
    std::fill(x + m * d, x + padded * d, A(0));
    gemm<A>(pool, {padded, v, d, {x, d}, {w, d, true}, logits, v}, {kChunkRows, kLogitColumns});
    pool.run(m, [&](std::int64_t i) {
      results[i] =
          pass<T>(p, logits + i * v, p.targets.as<std::int32_t>()[chunk_row[i]], with_grad);
    });
    for (std::int64_t i = 0; i < m; ++i) {
      sums[0] += results[i].loss;
      sums[1] += results[i].z_loss;
      *p.flags.as<std::int32_t>() |= results[i].flags;
      if (p.loss) p.loss.as<A>()[chunk_row[i]] = results[i].loss;
      if (p.top1) p.top1.as<std::int32_t>()[chunk_row[i]] = results[i].top1;
    }
    if (!with_grad) continue;
    gemm<A>(pool, {m, d, v, {logits, v}, {w, d}, product, d});
    pool.run_ranges(m, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const A r = results[i].grad_factor;
        T* out = p.grad_x.as<T>() + chunk_row[i] * d;
        for (std::int64_t c = 0; c < d; ++c) out[c] = T(r * product[i * d + c]);
        for (std::int64_t c = 0; c < d; ++c) x[i * d + c] = A(T(r * x[i * d + c]));
      }
    });
    const A beta = p.accumulate_grad_w || first > 0 ? A(1) : A(0);
    gemm<A>(pool, {v, d, m, {logits, v, true}, {x, d}, p.grad_w.as<A>(), d, 1, beta});
  }
}

}  // namespace

std::size_t CpuOps::lm_head_workspace_bytes(DType dtype,
                                            std::int64_t tokens,
                                            std::int64_t hidden,
                                            std::int64_t vocab,
                                            std::size_t budget_bytes,
                                            bool /*with_grad*/) const {
  const std::size_t tile = static_cast<std::size_t>(kChunkRows * chunk_elements(hidden, vocab)) *
                           dtype_bytes(work_dtype(dtype));
  const auto tiles = static_cast<std::size_t>((tokens + kChunkRows - 1) / kChunkRows);
  return std::clamp<std::size_t>(budget_bytes / tile, 1, std::max<std::size_t>(tiles, 1)) * tile;
}

void CpuOps::lm_head_loss(const LmHeadLoss& p) {
  require(p.x.dim(1) == p.w.dim(1) && p.targets.dim(0) == p.x.dim(0),
          "lm_head_loss",
          "need x [N, d], w [V, d], targets [N]",
          p.x,
          p.w,
          p.targets);
  for_dtype(
      "lm_head_loss", p.x.dtype, [&]<typename T>() { run<T>(p, pool_, memory_->of<Work<T>>()); });
}

void CpuOps::lm_head_logits(const LmHeadLogits& p) {
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  require(p.w.dim(1) == d && p.logits.dim(0) == n && p.logits.dim(1) == v,
          "lm_head_logits",
          "need x [N, d], w [V, d], logits [N, V]",
          p.x,
          p.w,
          p.logits);
  for_dtype("lm_head_logits", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& memory = memory_->of<A>();
    A* logits = p.logits.as<A>();
    const Operand<A> x{widened<T>(pool_, p.x, memory, 0), d};
    const Operand<A> w{widened<T>(pool_, p.w, memory, 1), d, true};
    gemm<A>(pool_, {n, v, d, x, w, logits, v});
    if (p.softcap == 0) return;
    const A cap = A(p.softcap);
    pool_.run_ranges(n * v, kCastGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) logits[i] = cap * fast_tanh(logits[i] / cap);
    });
  });
}

}  // namespace g2::cpu
