// Softcapped, grouped-query attention over interval masks, forward and backward.
//
// Query i sees keys lo[i] <= j <= i of the flat token axis: causality, window, packed documents and
// batch rows are one interval, and a row always sees itself. hi[j] is the last query that sees key
// j. For query head a with kv head b = a / (H/K):
//   s_ij  = scale q_i . k_j;   t_ij = tanh(s_ij / softcap);   S_ij = softcap t_ij
//   P_ij  = exp(S_ij) / sum over visible j' of exp(S_ij')
//   o_i   = sum_j P_ij v_j;    lse_i = log2(sum_j exp(S_ij))
// and backward, with delta_i = grad_o_i . o_i:
//   dS_ij = P_ij (grad_o_i . v_j - delta_i) (1 - t_ij^2) scale
//   grad_q_i = sum_j dS_ij k_j;  grad_k_j = sum_i dS_ij q_i;  grad_v_j = sum_i P_ij grad_o_i
// grad_k and grad_v are summed over the H/K query heads of their group. softcap 0: S = s, and the
// factor 1 - t^2 is 1.
//
// Requires     0 <= tokens < 2^31 - 128 (0 launches nothing), K divides H, 1 <= h <= 256, softcap
// >= 0;
//              0 <= lo[i] <= i and j <= hi[j] < tokens, both ascending; qkv, o and their gradients
//              aligned to 16 bytes.
// Arithmetic   T float: f32 FMAs throughout (no TF32). T bf16: tensor-core products of bf16 values
//              accumulated in f32; scores, softmax and statistics are f32; P and dS are rounded to
//              bf16 where they enter a product.
// Aliasing     none.
// Determinism  bitwise: no atomics; every sum has one owner and a fixed order. The path decides the
//              bits, not the stream, the grid's schedule or the number of multiprocessors.
// Memory       none beyond the arguments.
// Twin, test   src/cpu/attention.cpp, tests/ops/cuda_attention_test.cpp; speed in
//              tests/bench/attention_bench.cpp
// Source       Gemma2Attention (eager) in transformers
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

struct AttentionShape {
  std::int64_t tokens;  // N
  int q_heads;          // H
  int kv_heads;         // K
  int head_dim;         // h
  float scale;
  float softcap;  // 0: none
};

template <typename T>
struct AttentionForward {
  AttentionShape shape;
  const T* qkv;   // [N, (H + 2K) h]: rows of q heads, then k heads, then v heads
  const int* lo;  // [N]
  T* o;           // [N, H h]
  float* lse;     // [H, N]
};

template <typename T>
struct AttentionBackward {
  AttentionShape shape;
  const T* qkv;      // [N, (H + 2K) h]
  const T* o;        // [N, H h]
  const float* lse;  // [H, N]
  const T* grad_o;   // [N, H h]
  const int* lo;     // [N]
  const int* hi;     // [N]
  T* grad_qkv;       // [N, (H + 2K) h], all written
  float* delta;      // [H, N], scratch; holds grad_o . o afterwards
};

// Implementations of the contract. A slower path accepts every problem a faster one does.
enum class AttentionPath {
  kSimt,   // f32 FMAs; T float or bf16, any head_dim, any softcap
  kMma,    // mma.sync, sm_80 and later; bf16, head_dim 128 or 256
  kWgmma,  // wgmma and TMA, sm_90a only; bf16, head_dim 128 or 256, 0 < softcap <= 64
};

// The fastest path for this problem on the current device. Fails only when no device can be asked.
template <typename T>
cudaError_t choose_attention_path(const AttentionShape& shape, AttentionPath* path);

// Launches on `path`; cudaErrorNotSupported when the path does not cover the problem,
// cudaErrorInvalidValue when the problem breaks the contract.
template <typename T>
cudaError_t attention_forward(const AttentionForward<T>& p,
                              AttentionPath path,
                              cudaStream_t stream);
template <typename T>
cudaError_t attention_backward(const AttentionBackward<T>& p,
                               AttentionPath path,
                               cudaStream_t stream);

// On the path that choose_attention_path() names.
template <typename T>
cudaError_t attention_forward(const AttentionForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t attention_backward(const AttentionBackward<T>& p, cudaStream_t stream);

}  // namespace g2::kernels
