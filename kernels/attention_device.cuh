// Scores, probabilities and the order of blocks, shared by the tensor-core attention kernels.
#pragma once

#include <cstdint>

#include "kernels/attention_detail.h"
#include "kernels/fragment.cuh"

namespace g2::kernels::detail {

// A block's head and its tile of rows. Blocks start roughly in the order of their number, so tiles
// go from the longest rows to the shortest with all heads of a tile side by side: the schedule then
// ends with short blocks. The last queries see most keys; the first keys are seen by most queries.
struct BlockPlace {
  int head;
  int tile;
};

enum class Longest { kFirstTile, kLastTile };

__device__ __forceinline__ BlockPlace place_longest_first(int heads, Longest longest) {
  const int tile = blockIdx.x / heads;
  const int last_tile = gridDim.x / heads - 1;
  return {static_cast<int>(blockIdx.x % heads),
          longest == Longest::kFirstTile ? tile : last_tile - tile};
}

// Multipliers that turn q . k into S log2(e): tanh(q . k inner) outer with a softcap, q . k outer
// without.
struct ScoreScale {
  float inner;
  float outer;
};

inline ScoreScale score_scale(const AttentionShape& s) {
  if (s.softcap == 0) return {0, s.scale * kLog2E};
  return {s.scale / s.softcap, s.softcap * kLog2E};
}

// P of a q . k whose row has the given lse, and t; then P (1 - t^2).
template <bool kCapped>
__device__ __forceinline__ float probability(float product, ScoreScale scale, float lse, float* t) {
  *t = kCapped ? tanh_approx(product * scale.inner) : product;
  return exp2_approx(fmaf(*t, scale.outer, -lse));
}

template <bool kCapped>
__device__ __forceinline__ float times_slope(float p, float t) {
  return kCapped ? fmaf(-t * p, t, p) : p;
}

}  // namespace g2::kernels::detail
