// The paths behind kernels/attention.h, and what their launchers share. Included only by
// kernels/attention*.cu, and by the benchmark to time the parts of backward.
#pragma once

#include "kernels/attention.h"

namespace g2::kernels::detail {

inline constexpr float kLog2E = 1.4426950408889634f;

// With the scores bounded by the softcap, softmax needs no running maximum as long as sums of
// exp(cap) stay in f32: exp(64) 2^31 is below 2^124, and exp(-64) is far from a denormal. P itself
// is bf16, which has f32's range.
inline constexpr float kMaxFixedMaximumSoftcap = 64;
inline bool has_fixed_maximum(const AttentionShape& s) {
  return s.softcap > 0 && s.softcap <= kMaxFixedMaximumSoftcap;
}

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

inline bool has_tensor_core_head_dim(const AttentionShape& s) {
  return s.head_dim == 128 || s.head_dim == 256;
}

inline int ceil_div(std::int64_t a, int b) {
  return static_cast<int>((a + b - 1) / b);
}

// delta[a, i] = grad_o_i . o_i, the first step of every backward path.
template <typename T>
cudaError_t attention_delta(const AttentionBackward<T>& p, cudaStream_t stream);

// Each path: forward, then the two halves of backward, which expect delta already computed.
template <typename T>
cudaError_t attention_forward_simt(const AttentionForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t attention_dq_simt(const AttentionBackward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t attention_dkdv_simt(const AttentionBackward<T>& p, cudaStream_t stream);

// Shared memory of the largest mma.sync kernel.
int attention_mma_shared_bytes(int head_dim);
cudaError_t attention_forward_mma(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream);
cudaError_t attention_dq_mma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream);
cudaError_t attention_dkdv_mma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream);

cudaError_t attention_forward_wgmma(const AttentionForward<__nv_bfloat16>& p, cudaStream_t stream);
cudaError_t attention_dq_wgmma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream);
cudaError_t attention_dkdv_wgmma(const AttentionBackward<__nv_bfloat16>& p, cudaStream_t stream);

}  // namespace g2::kernels::detail
