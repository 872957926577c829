// Attention over intervals of a flat token axis, blocked over query tiles.
//
// The axis is cut where no query looks back (lo[i] == i: the start of a row or document) into
// segments, and segments into query tiles. A tile meets the whole range of keys that its queries
// see, as small matrix products on the rows where they lie. So every sum has an order fixed by its
// segment alone, and [H, N, N] never exists. bf16 is widened, computed in float and rounded once.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/lanes.h"
#include "cpu/memory.h"
#include "cpu/scratch.h"
#include "cpu/simd_math.h"
#include "cpu/widen.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kQueryTile = 64;
constexpr std::int64_t kLanes = 16;  // score rows start and end at multiples, for whole vectors
constexpr double kLog2E = 1.44269504088896340736;
// Up to this cap exp of a score and the sum over any row are normal floats: no row maximum needed.
constexpr double kLargestPlainCap = 60;

// Columns of a row of qkv and o, in elements.
struct Layout {
  std::int64_t head_dim, group, q_width, kv_width, row_width;

  explicit Layout(const AttentionShape& s)
      : head_dim(s.head_dim),
        group(s.q_heads / s.kv_heads),
        q_width(s.q_heads * s.head_dim),
        kv_width(s.kv_heads * s.head_dim),
        row_width(q_width + 2 * kv_width) {}
  std::int64_t q(std::int64_t head) const { return head * head_dim; }
  std::int64_t k(std::int64_t kv_head) const { return q_width + kv_head * head_dim; }
  std::int64_t v(std::int64_t kv_head) const { return q_width + kv_width + kv_head * head_dim; }
};

// Queries [begin, end) against keys [first_key, end): the scores of a row r are
// scores[r * ld + j - first_key], visible in [visible_begin(r), visible_end(r)).
struct QueryTile {
  std::int64_t begin, end, first_key;
  const std::int32_t* lo;

  std::int64_t rows() const { return end - begin; }
  std::int64_t keys() const { return end - first_key; }
  std::int64_t ld() const { return (keys() + kLanes - 1) / kLanes * kLanes; }
  std::int64_t visible_begin(std::int64_t r) const { return lo[begin + r] - first_key; }
  std::int64_t visible_end(std::int64_t r) const { return begin + r + 1 - first_key; }
};

QueryTile tile_at(const Segment& segment, std::int64_t begin, const std::int32_t* lo) {
  return {begin, std::min(begin + kQueryTile, segment.end), lo[begin], lo};
}

void find_segments(const char* op, const Tensor& lo_tensor, std::vector<Segment>& segments) {
  const std::int32_t* lo = lo_tensor.as<std::int32_t>();
  segments.clear();
  for (std::int64_t i = 0; i < lo_tensor.dim(0); ++i) {
    require(lo[i] >= (i == 0 ? 0 : lo[i - 1]) && lo[i] <= i,
            op,
            "need 0 <= lo[i] <= i, ascending",
            lo_tensor);
    if (lo[i] == i) segments.push_back({i, i});
    segments.back().end = i + 1;
  }
}

enum Slot { kScores, kGradScores, kSlots };

template <typename A>
A* thread_scratch(Slot slot, const QueryTile& tile) {
  thread_local Scratch<A, kSlots> scratch;
  return scratch.get(slot, static_cast<std::size_t>(tile.rows() * tile.ld()));
}

// body(j) for whole vectors that cover [begin, end): j also runs up to kLanes - 1 places beyond
// either end, inside the row.
template <typename Body>
void for_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  for (std::int64_t first = begin / kLanes * kLanes; first < end; first += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) body(first + lane);
  }
}

// Masked places become 0. A comparison would keep what a NaN among them makes of a product with 0.
template <typename A>
void clear_masked(const QueryTile& tile, std::int64_t r, A* row) {
  std::fill(row, row + tile.visible_begin(r), A(0));
  std::fill(row + tile.visible_end(r), row + tile.ld(), A(0));
}

template <typename A>
void scores(const QueryTile& tile, const Layout& at, const A* q, const A* k, A scale, A* s) {
  gemm_serial<A>({.m = tile.rows(),
                  .n = tile.keys(),
                  .k = at.head_dim,
                  .a = {q + tile.begin * at.row_width, at.row_width},
                  .b = {k + tile.first_key * at.row_width, at.row_width, true},
                  .c = s,
                  .c_ld = tile.ld(),
                  .alpha = scale});
}

// A row of s / softcap (of s without a cap) becomes exp(S - offset), its sum is returned.
template <typename A>
A exponentials(const QueryTile& tile, std::int64_t r, A softcap, A* row, A* offset) {
  const std::int64_t begin = tile.visible_begin(r);
  const std::int64_t end = tile.visible_end(r);
  *offset = 0;
  if (softcap != 0) {
    for_vectors(begin, end, [=](std::int64_t j) { row[j] = softcap * fast_tanh(row[j]); });
  }
  if (softcap != 0 && softcap <= A(kLargestPlainCap)) {
    for_vectors(begin, end, [=](std::int64_t j) { row[j] = exp_within(row[j]); });
  } else {
    const A highest = lane_max(end - begin, row + begin);
    for_vectors(begin, end, [=](std::int64_t j) { row[j] = fast_exp(row[j] - highest); });
    *offset = highest;
  }
  clear_masked(tile, r, row);
  const std::int64_t first = begin / kLanes * kLanes;
  return lane_sum<A>(end - first, [&](std::int64_t j) { return row[first + j]; });
}

template <typename A>
void forward_tile(const AttentionForward& p,
                  const Layout& at,
                  const QueryTile& tile,
                  std::int64_t head,
                  const A* qkv,
                  A* o) {
  const std::int64_t n = p.qkv.dim(0);
  const std::int64_t kv_head = head / at.group;
  const A softcap = A(p.shape.softcap);
  const A scale = A(p.shape.softcap == 0 ? p.shape.scale : p.shape.scale / p.shape.softcap);
  A* s = thread_scratch<A>(kScores, tile);
  scores(tile, at, qkv + at.q(head), qkv + at.k(kv_head), scale, s);
  A inverse_sum[kQueryTile];
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    A offset;
    const A sum = exponentials(tile, r, softcap, s + r * tile.ld(), &offset);
    p.lse.as<A>()[head * n + tile.begin + r] = A(kLog2E) * (offset + std::log(sum));
    inverse_sum[r] = A(1) / sum;
  }
  A* out = o + tile.begin * at.q_width + at.q(head);
  gemm_serial<A>({.m = tile.rows(),
                  .n = at.head_dim,
                  .k = tile.keys(),
                  .a = {s, tile.ld()},
                  .b = {qkv + tile.first_key * at.row_width + at.v(kv_head), at.row_width},
                  .c = out,
                  .c_ld = at.q_width});
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    A* row = out + r * at.q_width;
    for (std::int64_t i = 0; i < at.head_dim; ++i) row[i] *= inverse_sum[r];
  }
}

template <typename A>
struct BackwardRows {
  const A* qkv;
  const A* o;
  const A* grad_o;
  A* grad_qkv;
};

// A row of s / softcap becomes P, one of dP becomes dS (attention.md 4.5 of the numerics page).
template <typename A>
void score_gradients(const QueryTile& tile,
                     std::int64_t r,
                     const AttentionShape& shape,
                     A lse,
                     A delta,
                     A* s,
                     A* g) {
  const A softcap = A(shape.softcap);
  const A scale = A(shape.scale);
  const A shift = lse / A(kLog2E);
  const std::int64_t begin = tile.visible_begin(r);
  const std::int64_t end = tile.visible_end(r);
  if (softcap == 0) {
    for_vectors(begin, end, [=](std::int64_t j) {
      s[j] = fast_exp(s[j] - shift);
      g[j] = s[j] * (g[j] - delta) * scale;
    });
  } else {
    for_vectors(begin, end, [=](std::int64_t j) {
      const A t = fast_tanh(s[j]);
      s[j] = fast_exp(softcap * t - shift);
      g[j] = s[j] * (g[j] - delta) * ((A(1) - t * t) * scale);
    });
  }
  clear_masked(tile, r, s);
  clear_masked(tile, r, g);
}

template <typename A>
void backward_tile(const AttentionBackward& p,
                   const Layout& at,
                   const QueryTile& tile,
                   std::int64_t head,
                   const BackwardRows<A>& rows) {
  const std::int64_t n = p.qkv.dim(0);
  const std::int64_t h = at.head_dim;
  const std::int64_t kv_head = head / at.group;
  const A scale = A(p.shape.softcap == 0 ? p.shape.scale : p.shape.scale / p.shape.softcap);
  const Operand<A> q{rows.qkv + tile.begin * at.row_width + at.q(head), at.row_width};
  const Operand<A> k{rows.qkv + tile.first_key * at.row_width + at.k(kv_head), at.row_width};
  const Operand<A> v{rows.qkv + tile.first_key * at.row_width + at.v(kv_head), at.row_width, true};
  const Operand<A> grad_o{rows.grad_o + tile.begin * at.q_width + at.q(head), at.q_width};
  A* s = thread_scratch<A>(kScores, tile);
  A* g = thread_scratch<A>(kGradScores, tile);
  scores(tile, at, rows.qkv + at.q(head), rows.qkv + at.k(kv_head), scale, s);
  gemm_serial<A>(
      {.m = tile.rows(), .n = tile.keys(), .k = h, .a = grad_o, .b = v, .c = g, .c_ld = tile.ld()});
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const std::int64_t i = tile.begin + r;
    const A* o_row = rows.o + i * at.q_width + at.q(head);
    const A* grad_o_row = grad_o.data + r * at.q_width;
    const A delta = lane_sum<A>(h, [&](std::int64_t c) { return o_row[c] * grad_o_row[c]; });
    p.delta.as<A>()[head * n + i] = delta;
    score_gradients(
        tile, r, p.shape, p.lse.as<A>()[head * n + i], delta, s + r * tile.ld(), g + r * tile.ld());
  }
  A* grad_queries = rows.grad_qkv + tile.begin * at.row_width;
  A* grad_keys = rows.grad_qkv + tile.first_key * at.row_width;
  gemm_serial<A>({.m = tile.rows(),
                  .n = h,
                  .k = tile.keys(),
                  .a = {g, tile.ld()},
                  .b = k,
                  .c = grad_queries + at.q(head),
                  .c_ld = at.row_width});
  gemm_serial<A>({.m = tile.keys(),
                  .n = h,
                  .k = tile.rows(),
                  .a = {g, tile.ld(), true},
                  .b = q,
                  .c = grad_keys + at.k(kv_head),
                  .c_ld = at.row_width,
                  .beta = 1});
  gemm_serial<A>({.m = tile.keys(),
                  .n = h,
                  .k = tile.rows(),
                  .a = {s, tile.ld(), true},
                  .b = grad_o,
                  .c = grad_keys + at.v(kv_head),
                  .c_ld = at.row_width,
                  .beta = 1});
}

// All that a kv head's keys of one segment receive; its tiles follow one another.
template <typename A>
void backward_segment(const AttentionBackward& p,
                      const Layout& at,
                      const Segment& segment,
                      std::int64_t kv_head,
                      const BackwardRows<A>& rows) {
  for (std::int64_t i = segment.begin; i < segment.end; ++i) {
    A* row = rows.grad_qkv + i * at.row_width;
    std::fill_n(row + at.k(kv_head), at.head_dim, A(0));
    std::fill_n(row + at.v(kv_head), at.head_dim, A(0));
  }
  for (std::int64_t g = 0; g < at.group; ++g) {
    for (std::int64_t i = segment.begin; i < segment.end; i += kQueryTile) {
      backward_tile(
          p, at, tile_at(segment, i, p.lo.as<std::int32_t>()), kv_head * at.group + g, rows);
    }
  }
}

void check(const char* op,
           const AttentionShape& shape,
           const Tensor& qkv,
           const Tensor& lo,
           const Tensor& o,
           const Tensor& lse) {
  const bool grouped = shape.kv_heads > 0 && shape.q_heads % shape.kv_heads == 0;
  require(grouped && qkv.dim(1) == Layout(shape).row_width && o.dim(1) == Layout(shape).q_width &&
              o.dim(0) == qkv.dim(0),
          op,
          "need qkv [N, (H + 2K) h] and o [N, H h]",
          qkv,
          o);
  require(lo.dim(0) == qkv.dim(0) && lse.dim(0) == shape.q_heads && lse.dim(1) == qkv.dim(0),
          op,
          "need lo [N] and lse [H, N]",
          lo,
          lse);
  require_dtype(op, qkv.dtype, o);
  require_dtype(op, work_dtype(qkv.dtype), lse);
  require_dtype(op, DType::kI32, lo);
}

}  // namespace

void CpuOps::attention_forward(const AttentionForward& p) {
  check("attention_forward", p.shape, p.qkv, p.lo, p.o, p.lse);
  const Layout at(p.shape);
  std::vector<Segment>& segments = memory_->segments;
  find_segments("attention_forward", p.lo, segments);
  for_dtype("attention_forward", p.qkv.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& scratch = memory_->of<A>();
    const A* qkv = widened<T>(pool_, p.qkv, scratch, 0);
    A* o = narrow_target<T>(p.o, scratch, 1);
    const std::int64_t tasks = static_cast<std::int64_t>(segments.size()) * p.shape.q_heads;
    pool_.run(tasks, [&](std::int64_t task) {
      const Segment& segment = segments[task / p.shape.q_heads];
      for (std::int64_t i = segment.begin; i < segment.end; i += kQueryTile) {
        const QueryTile tile = tile_at(segment, i, p.lo.as<std::int32_t>());
        forward_tile(p, at, tile, task % p.shape.q_heads, qkv, o);
      }
    });
    narrow<T>(pool_, o, p.o);
  });
}

void CpuOps::attention_backward(const AttentionBackward& p) {
  check("attention_backward", p.shape, p.qkv, p.lo, p.o, p.lse);
  require_dtype("attention_backward", p.qkv.dtype, p.grad_o, p.grad_qkv);
  require_dtype("attention_backward", work_dtype(p.qkv.dtype), p.delta);
  const Layout at(p.shape);
  std::vector<Segment>& segments = memory_->segments;
  find_segments("attention_backward", p.lo, segments);
  for_dtype("attention_backward", p.qkv.dtype, [&]<typename T>() {
    using A = Work<T>;
    auto& scratch = memory_->of<A>();
    const BackwardRows<A> rows{widened<T>(pool_, p.qkv, scratch, 0),
                               widened<T>(pool_, p.o, scratch, 1),
                               widened<T>(pool_, p.grad_o, scratch, 2),
                               narrow_target<T>(p.grad_qkv, scratch, 3)};
    const std::int64_t tasks = static_cast<std::int64_t>(segments.size()) * p.shape.kv_heads;
    pool_.run(tasks, [&](std::int64_t task) {
      const Segment& segment = segments[task / p.shape.kv_heads];
      backward_segment(p, at, segment, task % p.shape.kv_heads, rows);
    });
    narrow<T>(pool_, rows.grad_qkv, p.grad_qkv);
  });
}

}  // namespace g2::cpu
