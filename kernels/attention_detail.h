// The paths behind kernels/attention.h, and what their launchers share. Included only by
// kernels/attention*.cu.
#pragma once

#include "kernels/attention.h"

namespace g2::kernels::detail {

inline constexpr float kLog2E = 1.4426950408889634f;

// Row lengths and head offsets of a fused [q | k | v] buffer, in elements.
struct QkvLayout {
  std::int64_t row;
  std::int64_t k;
  std::int64_t v;
};

inline QkvLayout qkv_layout(const AttentionShape& s) {
  const std::int64_t k = std::int64_t{s.q_heads} * s.head_dim;
  const std::int64_t v = k + std::int64_t{s.kv_heads} * s.head_dim;
  return {v + (v - k), k, v};
}

inline int ceil_div(std::int64_t a, int b) {
  return static_cast<int>((a + b - 1) / b);
}

// delta[a, i] = grad_o_i . o_i, the first step of every backward path.
template <typename T>
cudaError_t attention_delta(const AttentionBackward<T>& p, cudaStream_t stream);

template <typename T>
cudaError_t attention_forward_simt(const AttentionForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t attention_backward_simt(const AttentionBackward<T>& p, cudaStream_t stream);

}  // namespace g2::kernels::detail
