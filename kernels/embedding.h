// Embedding lookup and the deterministic sum of its gradient.
//
//   forward   y[n] = cast_T(scale table[ids[n]])
//   backward  grad_table[group_ids[g]] += scale sum_k grad_y[rows[k]],
//             k = begin[g] .. begin[g+1] - 1, in that order
//
//   ids                     [N]           i32  each in [0, V)
//   table                   [V, d]        T
//   y, grad_y               [N, d]        T
//   group_ids, begin, rows  [G], [G+1], [<= N]  i32  rows grouped by id; group ids differ
//   grad_table              [V, d]        f32  added to
//
// Requires     hidden >= 1; V * hidden may pass 2^31. No tokens or no groups launch nothing.
// Arithmetic   f32; forward rounds once.
// Aliasing     none.
// Determinism  bitwise: one thread owns a column of a group and adds its rows in order.
// Twin, test   src/cpu/embedding.cpp, tests/ops/cuda_rows_test.cpp; speed in
//              tests/bench/cuda_bench.cpp
// Source       nn.Embedding and the normalizer of Gemma2Model in transformers
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

template <typename T>
struct EmbeddingForward {
  const int* ids;
  const T* table;
  float scale;
  T* y;
  std::int64_t tokens;
  int hidden;
};

template <typename T>
struct EmbeddingBackward {
  const int* group_ids;
  const int* begin;
  const int* rows;
  const T* grad_y;
  float scale;
  float* grad_table;
  std::int64_t groups;
  int hidden;
};

template <typename T>
cudaError_t embedding_forward(const EmbeddingForward<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t embedding_backward(const EmbeddingBackward<T>& p, cudaStream_t stream);

}  // namespace g2::kernels
