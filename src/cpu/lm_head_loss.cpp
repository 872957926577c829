// The head, soft cap and cross-entropy in four steps a chunk of valid rows: chunk_logits,
// chunk_pass (in place: logits become E), chunk_dx, chunk_dw. docs/numerics.md derives the pass.
#include <algorithm>
#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/lanes.h"
#include "cpu/memory.h"
#include "cpu/simd_math.h"
#include "cpu/widen.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kLogitColumns = 1024;
// Up to this cap e^(c - cap) stays a normal float for any logit, so no row maximum is needed.
constexpr double kLargestOffsetCap = 36;
constexpr double kSaturated = 1e-4;  // LossFlag::kSaturatedTarget

// Rows of a tile of logits. Chunks are whole tiles, so a row's logits do not depend on the chunk
// size; a large vocabulary gets fewer, since one tile is the smallest workspace.
std::int64_t tile_rows(std::int64_t vocab) {
  return vocab <= 8192 ? 256 : 128;
}

std::int64_t chunk_elements_per_row(std::int64_t hidden, std::int64_t vocab) {
  return vocab + 2 * hidden;  // logits, gathered x, its gradient before it is scattered
}

// One chunk's part of the workspace: m valid rows, whole tiles of memory.
template <typename A>
struct Chunk {
  std::int64_t m;
  const std::int32_t* rows;  // [m] their places among the N tokens
  LossRow* results;          // [m]
  const A* w;                // [V, d]
  A* logits;                 // [whole tiles, V], then E with dz_j = grad_factor E_j
  A* x;                      // [whole tiles, d], scaled by grad_factor in chunk_dx
  A* grad_x;                 // [m, d]
};

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

// Replaces n logits by e = exp(c - offset) times 1 - t^2; returns the sum of e.
template <typename A>
A exponentials(std::int64_t n, A* z, A cap, A offset) {
  if (cap == 0) {
    return replace_and_sum(n, z, [=](A value) {
      const A e = fast_exp(value - offset);
      return Replaced<A>{e, e};
    });
  }
  const A inverse = A(1) / cap;
  const A shift = cap - offset;
  return replace_and_sum(n, z, [=](A value) {
    const Capped<A> c = capped(value, inverse, cap);
    const A e = fast_exp(shift - c.below_cap);
    return Replaced<A>{e * c.slope, e};
  });
}

template <typename A>
bool has_largest_logit(const A* z, std::int64_t vocab, std::int32_t y) {
  int beaten = 0;
  for (std::int64_t j = 0; j < y; ++j) beaten |= z[j] >= z[y] ? 1 : 0;
  for (std::int64_t j = y + 1; j < vocab; ++j) beaten |= z[j] > z[y] ? 1 : 0;
  return beaten == 0 && z[y] == z[y];
}

// loss = log(1 + R / e_y), from whichever form keeps its digits. `gap` = offset - c_y.
template <typename A>
A cross_entropy(A others, A target, A gap) {
  constexpr A kFar = 60;
  return gap < kFar ? std::log1p(others / target) : gap + std::log(others + target);
}

// What is subtracted from every capped logit before exp: the cap, or the largest capped logit.
template <typename A>
A exp_offset(const A* z, std::int64_t vocab, double softcap) {
  const A cap = A(softcap);
  if (softcap != 0 && softcap <= kLargestOffsetCap) return cap;
  const A largest = lane_max(vocab, z);
  return softcap == 0 ? largest : cap * fast_tanh(largest / cap);
}

// One row: z [V] becomes E (rounded to T) if gradients are wanted.
template <typename T>
LossRow row_pass(const LmHeadLoss& p, Work<T>* z, std::int32_t y, bool with_grad) {
  using A = Work<T>;
  const std::int64_t v = p.w.dim(0);
  const A cap = A(p.softcap);
  LossRow row;
  // z 0 is 0 for every number and NaN for inf and NaN.
  const bool finite = lane_sum<A>(v, [&](std::int64_t j) { return z[j] * A(0); }) == 0;
  if (!finite) row.flags |= kNonFiniteLogit;
  if (p.top1) row.top1 = has_largest_logit(z, v, y) ? 1 : 0;

  const A offset = exp_offset(z, v, p.softcap);
  A gap = offset - z[y];
  A slope = 1;
  if (cap != 0) {
    const Capped<A> at_y = capped(z[y], A(1) / cap, cap);
    gap = at_y.below_cap - (cap - offset);
    slope = at_y.slope;
  }
  const A target = fast_exp(-gap);
  // The last logit takes the target's place, so that the others lie side by side.
  z[y] = z[v - 1];
  const A others = exponentials(v - 1, z, cap, offset);
  const A sum = others + target;
  const A lse = offset + std::log(sum);
  const A loss = cross_entropy(others, target, gap);
  row.loss = loss;
  row.z_loss = A(p.z_weight) * lse * lse;
  if (!std::isfinite(loss)) row.flags |= kNonFiniteLoss;
  if (slope < A(kSaturated)) row.flags |= kSaturatedTarget;
  if (!with_grad) return row;
  const A k = A(2 * p.z_weight) * lse;
  row.grad_factor = A(p.grad_scale) * (A(1) + k) / sum;
  z[v - 1] = z[y];
  z[y] = (k * sum / (A(1) + k) - others) * slope;
  if constexpr (!std::is_same_v<T, A>) {
    for (std::int64_t j = 0; j < v; ++j) z[j] = A(T(z[j]));
  }
  return row;
}

template <typename T>
void chunk_logits(const LmHeadLoss& p, base::ThreadPool& pool, const Chunk<Work<T>>& c) {
  using A = Work<T>;
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  const std::int64_t tile = tile_rows(v);
  const std::int64_t padded = (c.m + tile - 1) / tile * tile;
  pool.run_ranges(padded, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      A* x = c.x + i * d;
      if (i < c.m) {
        const T* source = p.x.as<T>() + c.rows[i] * d;
        for (std::int64_t column = 0; column < d; ++column) x[column] = A(source[column]);
      } else {
        std::fill_n(x, d, A(0));
      }
    }
  });
  gemm<A>(pool, {padded, v, d, {c.x, d}, {c.w, d, true}, c.logits, v}, {tile, kLogitColumns});
}

template <typename T>
void chunk_pass(const LmHeadLoss& p,
                base::ThreadPool& pool,
                const Chunk<Work<T>>& c,
                bool with_grad) {
  const std::int64_t v = p.w.dim(0);
  const std::int32_t* targets = p.targets.as<std::int32_t>();
  pool.run_ranges(c.m, rows_per_task(v), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      c.results[i] = row_pass<T>(p, c.logits + i * v, targets[c.rows[i]], with_grad);
    }
  });
  double* sums = p.sums.as<double>();
  for (std::int64_t i = 0; i < c.m; ++i) {
    const LossRow& row = c.results[i];
    sums[0] += row.loss;
    sums[1] += row.z_loss;
    *p.flags.as<std::int32_t>() |= row.flags;
    if (p.loss) p.loss.as<Work<T>>()[c.rows[i]] = static_cast<Work<T>>(row.loss);
    if (p.top1) p.top1.as<std::int32_t>()[c.rows[i]] = row.top1;
  }
}

// grad_x = r (E w), rounded once; x becomes cast_T(r x) for chunk_dw.
template <typename T>
void chunk_dx(const LmHeadLoss& p, base::ThreadPool& pool, const Chunk<Work<T>>& c) {
  using A = Work<T>;
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  gemm<A>(pool, {c.m, d, v, {c.logits, v}, {c.w, d}, c.grad_x, d});
  pool.run_ranges(c.m, rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const A r = static_cast<A>(c.results[i].grad_factor);
      const A* product = c.grad_x + i * d;
      A* x = c.x + i * d;
      T* out = p.grad_x.as<T>() + c.rows[i] * d;
      for (std::int64_t column = 0; column < d; ++column) {
        out[column] = T(r * product[column]);
        x[column] = A(T(r * x[column]));
      }
    }
  });
}

template <typename A>
void chunk_dw(const LmHeadLoss& p, base::ThreadPool& pool, const Chunk<A>& c, bool accumulate) {
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  const A beta = accumulate ? A(1) : A(0);
  gemm<A>(pool, {v, d, c.m, {c.logits, v, true}, {c.x, d}, p.grad_w.as<A>(), d, 1, beta});
}

void find_valid_rows(const Tensor& targets, std::int64_t vocab, std::vector<std::int32_t>& rows) {
  rows.clear();
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
}

template <typename T>
void clear_ignored(const LmHeadLoss& p) {
  const std::int64_t d = p.x.dim(1);
  for (std::int64_t row = 0; row < p.targets.dim(0); ++row) {
    if (p.targets.as<std::int32_t>()[row] != kIgnoredTarget) continue;
    if (p.loss) p.loss.as<Work<T>>()[row] = 0;
    if (p.top1) p.top1.as<std::int32_t>()[row] = 0;
    if (p.grad_x) std::fill_n(p.grad_x.as<T>() + row * d, d, T(0.0F));
  }
}

template <typename T>
void all_chunks(const LmHeadLoss& p,
                base::ThreadPool& pool,
                const Work<T>* w,
                const std::vector<std::int32_t>& rows,
                std::vector<LossRow>& results) {
  using A = Work<T>;
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  const auto valid = static_cast<std::int64_t>(rows.size());
  const bool with_grad = static_cast<bool>(p.grad_x);
  const std::int64_t row_bytes =
      chunk_elements_per_row(d, v) * static_cast<std::int64_t>(sizeof(A));
  const std::int64_t chunk =
      static_cast<std::int64_t>(p.workspace.bytes()) / row_bytes / tile_rows(v) * tile_rows(v);
  require(chunk > 0,
          "lm_head_loss",
          "the workspace is smaller than lm_head_workspace_bytes()",
          p.workspace);
  results.resize(static_cast<std::size_t>(std::min(chunk, valid)));
  A* logits = static_cast<A*>(p.workspace.data);
  A* x = logits + chunk * v;
  for (std::int64_t first = 0; first < valid; first += chunk) {
    const Chunk<A> c{.m = std::min(chunk, valid - first),
                     .rows = rows.data() + first,
                     .results = results.data(),
                     .w = w,
                     .logits = logits,
                     .x = x,
                     .grad_x = x + chunk * d};
    chunk_logits<T>(p, pool, c);
    chunk_pass<T>(p, pool, c, with_grad);
    if (!with_grad) continue;
    chunk_dx<T>(p, pool, c);
    chunk_dw<A>(p, pool, c, p.accumulate_grad_w || first > 0);
  }
  if (with_grad && valid == 0 && !p.accumulate_grad_w) std::fill_n(p.grad_w.as<A>(), v * d, A(0));
}

}  // namespace

std::size_t CpuOps::lm_head_workspace_bytes(DType dtype,
                                            std::int64_t tokens,
                                            std::int64_t hidden,
                                            std::int64_t vocab,
                                            std::size_t budget_bytes,
                                            bool /*with_grad*/) const {
  const std::int64_t rows = tile_rows(vocab);
  const std::size_t tile = static_cast<std::size_t>(rows * chunk_elements_per_row(hidden, vocab)) *
                           dtype_bytes(work_dtype(dtype));
  const auto tiles = static_cast<std::size_t>((tokens + rows - 1) / rows);
  return std::clamp<std::size_t>(budget_bytes / tile, 1, std::max<std::size_t>(tiles, 1)) * tile;
}

void CpuOps::lm_head_loss(const LmHeadLoss& p) {
  require(p.x.dim(1) == p.w.dim(1) && p.targets.dim(0) == p.x.dim(0) &&
              static_cast<bool>(p.grad_x) == static_cast<bool>(p.grad_w),
          "lm_head_loss",
          "need x [N, d], w [V, d], targets [N], both gradients or none",
          p.x,
          p.w,
          p.targets);
  const DType work = work_dtype(p.x.dtype);
  require_dtype("lm_head_loss", p.x.dtype, p.w, p.grad_x);
  require_dtype("lm_head_loss", work, p.loss, p.grad_w);
  require_dtype("lm_head_loss", DType::kI32, p.targets, p.top1, p.flags);
  require_dtype("lm_head_loss", DType::kF64, p.sums);
  find_valid_rows(p.targets, p.w.dim(0), memory_->valid_rows);
  for_dtype("lm_head_loss", p.x.dtype, [&]<typename T>() {
    const auto* w = widened<T>(pool_, p.w, memory_->of<Work<T>>(), 1);
    clear_ignored<T>(p);
    all_chunks<T>(p, pool_, w, memory_->valid_rows, memory_->loss_rows);
  });
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
  require_dtype("lm_head_logits", p.x.dtype, p.w);
  require_dtype("lm_head_logits", work_dtype(p.x.dtype), p.logits);
  for_dtype("lm_head_logits", p.x.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& memory = memory_->of<A>();
    A* logits = p.logits.as<A>();
    const Operand<A> x{widened<T>(pool_, p.x, memory, 0), d};
    const Operand<A> w{widened<T>(pool_, p.w, memory, 1), d, true};
    gemm<A>(pool_, {n, v, d, x, w, logits, v});
    if (p.softcap == 0) return;
    const A cap = A(p.softcap);
    const A inverse = A(1) / cap;
    pool_.run_ranges(n * v, kCastGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) logits[i] = cap * fast_tanh(logits[i] * inverse);
    });
  });
}

}  // namespace g2::cpu
