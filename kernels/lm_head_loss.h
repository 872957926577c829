// The row-wise steps of the language-model head with softcap and cross-entropy, in chunks of rows.
//
// With z = x w^T, t = tanh(z / softcap), c = softcap t (c = z without a cap), y the target:
//   e_j = exp(c_j - offset), offset = softcap up to kLargestOffsetCap, else max_j c_j
//   R = sum_{j != y} e_j,  S = R + e_y,  lse = offset + log S
//   loss = log1p(R / e_y),  z-loss = z_weight lse^2,  k = 2 z_weight lse
//   dz_j = factor E_j,  factor = grad_scale (1 + k) / S
//   E_j = e_j (1 - t_j^2) for j != y,  E_y = (k S / (1 + k) - R) (1 - t_y^2)
// so R never meets e_y in a difference, and E is rounded to T once. Steps of a chunk of m rows:
//   gather  x_chunk = the rows that have a target, then rows of zeros
//   then either  a product z = x_chunk w^T in f32 and lm_head_pass: z -> E in place
//   or           lm_head_fused: product and pass in one kernel, z never stored; then lm_head_finish
//   a product E w in f32 and scatter_grad_x: grad_x = cast_T(factor E w);  scale_rows: x_chunk =
//   cast_T(factor x_chunk);  a product grad_w += E^T x_chunk
//   at the end  add_loss_sums
//
// Requires     0 <= valid <= padded rows; 16-byte aligned rows of x where `hidden` allows wide
//              accesses; targets in [0, vocab). A target outside gives loss NaN and a flag.
//              rows * vocab may pass 2^31.
// Arithmetic   f32; exp and division of lm_head_pass to 1e-6, lm_head_fused with tanh.approx, to
//              8e-6 of t. Sums over rows in f64.
// Aliasing     none but z and E (lm_head_pass).
// Determinism  bitwise: fixed trees; only flags are or-ed atomically. Loss bits do not depend on
//              the chunk size as far as z does not.
// Twin, test   src/cpu/lm_head_loss.cpp, tests/ops/cuda_lm_head_test.cpp; speed in
//              tests/bench/cuda_bench.cpp
// Source       Gemma2ForCausalLM in transformers; docs/numerics.md "The loss"
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

// Up to this cap exp(c - cap) stays a normal float for any logit.
inline constexpr float kLargestOffsetCap = 36;

// Bits or-ed into flags.
inline constexpr int kLossNonFiniteLogit = 1;
inline constexpr int kLossNonFiniteLoss = 2;
inline constexpr int kLossSaturatedTarget = 4;

// The rows of a chunk: m = padded rows, the first `valid` of them are rows[i] of the N tokens.
struct LossRows {
  const int* rows;  // [valid]
  std::int64_t valid;
  std::int64_t padded;
};

template <typename T>
struct GatherRows {
  LossRows at;
  const T* x;          // [N, d]
  const int* targets;  // [N]
  T* x_chunk;          // [padded, d]
  int* chunk_targets;  // [padded], -1 behind the valid rows
  int hidden;
};

struct LossTerms {
  float softcap;  // 0: none
  float z_weight;
  float grad_scale;
};

// What a row leaves. All but token_loss, token_top1 and flags are indexed by place in the chunk.
struct LossResults {
  float* loss;        // [valid]
  float* z_loss;      // [valid]
  float* factor;      // [valid]
  float* token_loss;  // [N], or null
  int* token_top1;    // [N], or null: 1 where no logit is larger and none of a lower id equal
  int* flags;         // [1]
};

template <typename T>
struct LossPass {
  LossRows at;
  const int* chunk_targets;
  float* logits;  // [padded, row_elements]: z; then E as T from the start of each row
  std::int64_t row_elements;
  std::int64_t vocab;
  LossTerms terms;
  LossResults out;
  bool with_grad;  // false: E is not written, logits stay
};

// Partial results of the fused product, a row of `padded` for each tile of kFusedColumns columns.
inline constexpr int kFusedColumns = 256;
inline constexpr int kFusedRows = 256;  // `padded` is a multiple

struct FusedPartials {
  float* others;    // [tiles, padded]  sums of e over non-targets
  float* best;      // [tiles, padded]  largest logit and its lowest id; null where top1 is not
  int* best_id;     //                  wanted
  float* z_target;  // [padded]
};

struct FusedLogits {
  const __nv_bfloat16* x;  // [padded, d]
  const __nv_bfloat16* w;  // [V, d]
  const int* chunk_targets;
  __nv_bfloat16* e;  // [padded, e_row_elements], or null: evaluation only
  std::int64_t e_row_elements;
  std::int64_t padded;
  std::int64_t vocab;
  int hidden;
  float softcap;
  FusedPartials partials;
  int* flags;
};

struct LossFinish {
  LossRows at;
  const int* chunk_targets;
  FusedPartials partials;
  __nv_bfloat16* e;  // as above: E of the target is put in place
  std::int64_t e_row_elements;
  std::int64_t vocab;
  LossTerms terms;
  LossResults out;
};

template <typename T>
struct ScatterGradX {
  LossRows at;
  const float* product;  // [padded, d]
  const float* factor;   // [valid]
  T* grad_x;             // [N, d]; other rows are left alone
  int hidden;
};

template <typename T>
struct ScaleRows {
  T* x;                 // [rows, d], in place
  const float* factor;  // [rows]
  std::int64_t rows;
  int hidden;
};

struct AddLossSums {
  const float* loss;
  const float* z_loss;
  std::int64_t count;
  double* sums;  // [2], added to
};

// logits = softcap tanh(logits / softcap), in place; tanh is exact to f32.
struct SoftcapLogits {
  float* logits;
  std::int64_t count;
  float softcap;
};

template <typename T>
cudaError_t gather_rows(const GatherRows<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t lm_head_pass(const LossPass<T>& p, cudaStream_t stream);
cudaError_t lm_head_finish(const LossFinish& p, cudaStream_t stream);
template <typename T>
cudaError_t scatter_grad_x(const ScatterGradX<T>& p, cudaStream_t stream);
template <typename T>
cudaError_t scale_rows(const ScaleRows<T>& p, cudaStream_t stream);
cudaError_t add_loss_sums(const AddLossSums& p, cudaStream_t stream);
cudaError_t softcap_logits(const SoftcapLogits& p, cudaStream_t stream);

// Hopper only (sm_90a): tiles of 256 x 256 logits by wgmma, with the pass as their epilogue.
// Requires hidden % 8 == 0, x, w and e aligned to 16 bytes, e_row_elements % 8 == 0, padded a
// multiple of kFusedRows, 0 < softcap <= kLargestOffsetCap, vocab < 2^31.
bool lm_head_fused_covers(int hidden, float softcap);
cudaError_t lm_head_fused(const FusedLogits& p, cudaStream_t stream);

}  // namespace g2::kernels
