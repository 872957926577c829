// Attention over intervals of a flat token axis, blocked over query tiles.
//
// Work is cut where no query looks back (`lo[i] == i`: the start of a row or document) into
// segments, and by kv head. A task walks one segment of one kv head in query tiles, each against
// the whole range of keys its queries see, so every sum has an order fixed by the shapes: no task
// shares an output.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"
#include "cpu/gemm.h"
#include "cpu/lanes.h"
#include "cpu/scratch.h"
#include "cpu/simd_math.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kQueryTile = 64;
constexpr double kLog2E = 1.44269504088896340736;

struct Segment {
  std::int64_t begin, end;  // flat token indices
};

std::vector<Segment> segments_of(const std::int32_t* lo, std::int64_t n) {
  std::vector<Segment> segments;
  for (std::int64_t i = 0; i < n; ++i) {
    if (lo[i] == i) {
      if (!segments.empty()) segments.back().end = i;
      segments.push_back({i, n});
    }
  }
  return segments;
}

// Columns [first, first + width) of a segment's rows as A: in place, or widened into scratch.
template <typename T, typename Memory>
Operand<Work<T>> columns(const T* rows,
                         std::int64_t row_width,
                         std::int64_t first,
                         std::int64_t width,
                         const Segment& segment,
                         Memory& memory,
                         int slot) {
  using A = Work<T>;
  const T* source = rows + segment.begin * row_width + first;
  if constexpr (std::is_same_v<T, A>) {
    return {source, row_width};
  } else {
    const std::int64_t count = segment.end - segment.begin;
    A* wide = memory.get(slot, static_cast<std::size_t>(count * width));
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < width; ++j) wide[i * width + j] = A(source[i * row_width + j]);
    }
    return {wide, width};
  }
}

template <typename A>
Operand<A> from_row(const Operand<A>& operand, std::int64_t row, bool transposed) {
  return {operand.data + row * operand.ld, operand.ld, transposed};
}

// Score s to capped score S = softcap tanh(s / softcap), and t; without a cap S = s, t = 0.
template <typename A>
void cap_scores(A* s, A* t, std::int64_t count, A softcap) {
  if (softcap == 0) {
    if (t != nullptr) std::fill(t, t + count, A(0));
    return;
  }
  const A inverse = A(1) / softcap;
  for (std::int64_t j = 0; j < count; ++j) {
    const A tanh_j = fast_tanh(s[j] * inverse);
    if (t != nullptr) t[j] = tanh_j;
    s[j] = softcap * tanh_j;
  }
}

enum Slot { kScores, kTanh, kGradScores, kQ, kK, kV, kO, kGradO, kGradK, kGradV, kOut, kSlots };

template <typename A>
Scratch<A, kSlots>& thread_scratch() {
  thread_local Scratch<A, kSlots> scratch;
  return scratch;
}

struct Layout {
  std::int64_t head_dim, group, q_width, kv_width, row_width;
};

Layout layout_of(const AttentionShape& s) {
  const std::int64_t q_width = s.q_heads * s.head_dim;
  const std::int64_t kv_width = s.kv_heads * s.head_dim;
  return {s.head_dim, s.q_heads / s.kv_heads, q_width, kv_width, q_width + 2 * kv_width};
}

// Probabilities (not yet divided by their sum) of tile rows in place of scores; returns through
// lse.
template <typename A>
void softmax_row(A* s,
                 std::int64_t visible_begin,
                 std::int64_t visible_end,
                 std::int64_t count,
                 A* lse,
                 A* scale) {
  A highest = s[visible_begin];
  for (std::int64_t j = visible_begin; j < visible_end; ++j) highest = std::max(highest, s[j]);
  for (std::int64_t j = visible_begin; j < visible_end; ++j) s[j] = fast_exp(s[j] - highest);
  const A sum = lane_sum<A>(visible_end - visible_begin,
                            [&](std::int64_t j) { return s[visible_begin + j]; });
  std::fill(s, s + visible_begin, A(0));
  std::fill(s + visible_end, s + count, A(0));
  *lse = A(kLog2E) * (highest + std::log(sum));
  *scale = A(1) / sum;
}

template <typename T>
void forward_segment(const AttentionForward& p, const Segment& segment, std::int64_t kv_head) {
  using A = Work<T>;
  const Layout at = layout_of(p.shape);
  auto& memory = thread_scratch<A>();
  const std::int32_t* lo = p.lo.as<std::int32_t>();
  const std::int64_t n = p.qkv.dim(0);
  const std::int64_t h = at.head_dim;
  const auto k =
      columns(p.qkv.as<T>(), at.row_width, at.q_width + kv_head * h, h, segment, memory, kK);
  const auto v = columns(
      p.qkv.as<T>(), at.row_width, at.q_width + at.kv_width + kv_head * h, h, segment, memory, kV);
  for (std::int64_t g = 0; g < at.group; ++g) {
    const std::int64_t head = kv_head * at.group + g;
    const auto q = columns(p.qkv.as<T>(), at.row_width, head * h, h, segment, memory, kQ);
    for (std::int64_t i0 = segment.begin; i0 < segment.end; i0 += kQueryTile) {
      const std::int64_t rows = std::min(kQueryTile, segment.end - i0);
      const std::int64_t j0 = lo[i0];
      const std::int64_t keys = i0 + rows - j0;
      A* s = memory.get(kScores, static_cast<std::size_t>(rows * keys));
      gemm_serial<A>(rows,
                     keys,
                     h,
                     A(p.shape.scale),
                     from_row(q, i0 - segment.begin, false),
                     from_row(k, j0 - segment.begin, true),
                     0,
                     s,
                     keys);
      cap_scores<A>(s, nullptr, rows * keys, A(p.shape.softcap));
      A scales[kQueryTile];
      for (std::int64_t r = 0; r < rows; ++r) {
        softmax_row(s + r * keys,
                    lo[i0 + r] - j0,
                    i0 + r + 1 - j0,
                    keys,
                    p.lse.as<A>() + head * n + i0 + r,
                    &scales[r]);
      }
      A* out = memory.get(kOut, static_cast<std::size_t>(rows * h));
      gemm_serial<A>(
          rows, h, keys, 1, {s, keys}, from_row(v, j0 - segment.begin, false), 0, out, h);
      for (std::int64_t r = 0; r < rows; ++r) {
        T* o = p.o.as<T>() + (i0 + r) * at.q_width + head * h;
        for (std::int64_t i = 0; i < h; ++i) o[i] = T(out[r * h + i] * scales[r]);
      }
    }
  }
}

// P, t and dS of one tile: s becomes P, grad_s (holding dO V^T) becomes dS.
template <typename A>
void score_gradients(const AttentionBackward& p,
                     std::int64_t i0,
                     std::int64_t rows,
                     std::int64_t j0,
                     std::int64_t keys,
                     const A* lse,
                     const A* delta,
                     A* s,
                     A* t,
                     A* grad_s) {
  const std::int32_t* lo = p.lo.as<std::int32_t>();
  const A scale = A(p.shape.scale);
  cap_scores<A>(s, t, rows * keys, A(p.shape.softcap));
  for (std::int64_t r = 0; r < rows; ++r) {
    A* s_row = s + r * keys;
    A* t_row = t + r * keys;
    A* g_row = grad_s + r * keys;
    const std::int64_t begin = lo[i0 + r] - j0;
    const std::int64_t end = i0 + r + 1 - j0;
    const A shift = lse[i0 + r] / A(kLog2E);
    const A d = delta[i0 + r];
    for (std::int64_t j = begin; j < end; ++j) {
      const A probability = fast_exp(s_row[j] - shift);
      s_row[j] = probability;
      g_row[j] = probability * (g_row[j] - d) * (A(1) - t_row[j] * t_row[j]) * scale;
    }
    for (A* row : {s_row, g_row}) {
      std::fill(row, row + begin, A(0));
      std::fill(row + end, row + keys, A(0));
    }
  }
}

template <typename T>
void store_rows(
    const Work<T>* from, std::int64_t rows, std::int64_t width, T* to, std::int64_t to_width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) to[r * to_width + i] = T(from[r * width + i]);
  }
}

template <typename T>
void backward_segment(const AttentionBackward& p, const Segment& segment, std::int64_t kv_head) {
  using A = Work<T>;
  const Layout at = layout_of(p.shape);
  auto& memory = thread_scratch<A>();
  const std::int32_t* lo = p.lo.as<std::int32_t>();
  const std::int64_t n = p.qkv.dim(0);
  const std::int64_t h = at.head_dim;
  const std::int64_t length = segment.end - segment.begin;
  const std::int64_t k_column = at.q_width + kv_head * h;
  const std::int64_t v_column = k_column + at.kv_width;
  const auto k = columns(p.qkv.as<T>(), at.row_width, k_column, h, segment, memory, kK);
  const auto v = columns(p.qkv.as<T>(), at.row_width, v_column, h, segment, memory, kV);
  const auto sum_of = [&](Slot slot) {
    A* sum = memory.get(slot, static_cast<std::size_t>(length * h));
    std::fill(sum, sum + length * h, A(0));
    return sum;
  };
  A* grad_k = sum_of(kGradK);
  A* grad_v = sum_of(kGradV);
  T* grad_rows = p.grad_qkv.as<T>() + segment.begin * at.row_width;
  for (std::int64_t g = 0; g < at.group; ++g) {
    const std::int64_t head = kv_head * at.group + g;
    const auto q = columns(p.qkv.as<T>(), at.row_width, head * h, h, segment, memory, kQ);
    const auto o = columns(p.o.as<T>(), at.q_width, head * h, h, segment, memory, kO);
    const auto grad_o = columns(p.grad_o.as<T>(), at.q_width, head * h, h, segment, memory, kGradO);
    A* delta = p.delta.as<A>() + head * n;
    const A* lse = p.lse.as<A>() + head * n;
    for (std::int64_t i = 0; i < length; ++i) {
      delta[segment.begin + i] = lane_sum<A>(
          h, [&](std::int64_t c) { return o.data[i * o.ld + c] * grad_o.data[i * grad_o.ld + c]; });
    }
    for (std::int64_t i0 = segment.begin; i0 < segment.end; i0 += kQueryTile) {
      const std::int64_t rows = std::min(kQueryTile, segment.end - i0);
      const std::int64_t j0 = lo[i0];
      const std::int64_t keys = i0 + rows - j0;
      const std::int64_t q_row = i0 - segment.begin;
      const std::int64_t k_row = j0 - segment.begin;
      const auto tile_size = static_cast<std::size_t>(rows * keys);
      A* s = memory.get(kScores, tile_size);
      A* t = memory.get(kTanh, tile_size);
      A* grad_s = memory.get(kGradScores, tile_size);
      gemm_serial<A>(rows,
                     keys,
                     h,
                     A(p.shape.scale),
                     from_row(q, q_row, false),
                     from_row(k, k_row, true),
                     0,
                     s,
                     keys);
      gemm_serial<A>(rows,
                     keys,
                     h,
                     1,
                     from_row(grad_o, q_row, false),
                     from_row(v, k_row, true),
                     0,
                     grad_s,
                     keys);
      score_gradients<A>(p, i0, rows, j0, keys, lse, delta, s, t, grad_s);
      A* grad_q = memory.get(kOut, static_cast<std::size_t>(rows * h));
      gemm_serial<A>(rows, h, keys, 1, {grad_s, keys}, from_row(k, k_row, false), 0, grad_q, h);
      gemm_serial<A>(keys,
                     h,
                     rows,
                     1,
                     {grad_s, keys, true},
                     from_row(q, q_row, false),
                     1,
                     grad_k + k_row * h,
                     h);
      gemm_serial<A>(keys,
                     h,
                     rows,
                     1,
                     {s, keys, true},
                     from_row(grad_o, q_row, false),
                     1,
                     grad_v + k_row * h,
                     h);
      store_rows<T>(grad_q, rows, h, grad_rows + q_row * at.row_width + head * h, at.row_width);
    }
  }
  store_rows<T>(grad_k, length, h, grad_rows + k_column, at.row_width);
  store_rows<T>(grad_v, length, h, grad_rows + v_column, at.row_width);
}

void check(const char* op, const AttentionShape& shape, const Tensor& qkv, const Tensor& o) {
  const Layout at = layout_of(shape);
  require(
      shape.q_heads % shape.kv_heads == 0 && qkv.dim(1) == at.row_width && o.dim(1) == at.q_width,
      op,
      "need qkv [N, (H + 2K) h] and o [N, H h]",
      qkv,
      o);
}

}  // namespace

void CpuOps::attention_forward(const AttentionForward& p) {
  check("attention_forward", p.shape, p.qkv, p.o);
  const std::vector<Segment> segments = segments_of(p.lo.as<std::int32_t>(), p.qkv.dim(0));
  const auto count = static_cast<std::int64_t>(segments.size());
  for_dtype("attention_forward", p.qkv.dtype, [&]<typename T>() {
    pool_.run(count * p.shape.kv_heads, [&](std::int64_t task) {
      forward_segment<T>(p, segments[task / p.shape.kv_heads], task % p.shape.kv_heads);
    });
  });
}

void CpuOps::attention_backward(const AttentionBackward& p) {
  check("attention_backward", p.shape, p.qkv, p.o);
  const std::vector<Segment> segments = segments_of(p.lo.as<std::int32_t>(), p.qkv.dim(0));
  const auto count = static_cast<std::int64_t>(segments.size());
  for_dtype("attention_backward", p.qkv.dtype, [&]<typename T>() {
    pool_.run(count * p.shape.kv_heads, [&](std::int64_t task) {
      backward_segment<T>(p, segments[task / p.shape.kv_heads], task % p.shape.kv_heads);
    });
  });
}

}  // namespace g2::cpu
