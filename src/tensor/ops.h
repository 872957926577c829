// Ops: the fused operations a Gemma 2 training step is made of. One of the three virtual
// interfaces.
//
// The model is written once over this interface; CpuOps (the reference) and CudaOps implement it.
// Letters in comments: N tokens, d hidden, f intermediate, H query heads, K kv heads, h head_dim,
// V vocabulary; Q = (H + 2K) h, the width of a fused [q | k | v] row.
// Types: T is the compute type (f64, f32 or bf16); A = Work<T>, f64 for f64 and f32 otherwise: the
// type of statistics, parameter gradients, master weights and moments. Inside an op values are
// computed in A and rounded to T once, when stored.
// Unless an op says otherwise: dense rows, outputs are written (not added to), no argument overlaps
// another, results are the same bits on every run and for every thread count.
// A failed requirement throws DeviceError naming the op and the shapes.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace g2 {

// Target value of a row that takes no part in the loss.
inline constexpr std::int32_t kIgnoredTarget = -100;

// Rows grouped by an id, made on the host by group_rows_by_id(): group g holds rows
// rows[begin[g]] .. rows[begin[g+1]-1], ascending, all with id ids[g]; ids ascend.
struct RowGroups {
  std::int64_t groups = 0;
  Tensor ids;    // [groups]      i32
  Tensor begin;  // [groups + 1]  i32
  Tensor rows;   // [<= N]        i32
};

// y[n] = cast_T(scale * table[ids[n]])
struct EmbeddingForward {
  Tensor ids;    // [N]     i32, each in [0, V)
  Tensor table;  // [V, d]  T
  double scale;  // sqrt(d), already rounded to T
  Tensor y;      // [N, d]  T
};

// grad_table[ids[g]] += scale * sum over the group's rows n, in order, of grad_y[n].
// Rows that give no gradient (padding) are left out of the groups.
struct EmbeddingBackward {
  RowGroups groups;
  Tensor grad_y;  // [N, d]  T
  double scale;
  Tensor grad_table;  // [V, d]  A, added to
};

// r[n] = 1 / sqrt(mean_i x[n,i]^2 + eps);  y[n,i] = cast_T(x[n,i] r[n] (1 + w[i]))
struct RmsnormForward {
  Tensor x;  // [N, d]  T
  Tensor w;  // [d]     T
  double eps;
  Tensor y;  // [N, d]  T; may be x
  Tensor r;  // [N]     A
};

// Post-norm of a branch, residual add and the next pre-norm, in one pass:
//   sum[n] = cast_T(residual[n] + branch[n] r_post[n] (1 + w_post))
//   y[n]   = RMSNorm of the stored (rounded) sum[n] with gain 1 + w_pre
struct RmsnormAddForward {
  Tensor branch;    // [N, d]  T
  Tensor w_post;    // [d]     T
  Tensor residual;  // [N, d]  T
  Tensor w_pre;     // [d]     T
  double eps;
  Tensor sum;     // [N, d]  T; may be residual
  Tensor y;       // [N, d]  T; may be branch
  Tensor r_post;  // [N]     A
  Tensor r_pre;   // [N]     A
};

// With u = x, g = grad_y (1 + w):
//   grad_x[n,i] = cast_T(residual[n,i] + r g_i - u_i r^3 mean_j(g_j u_j))
//   grad_w[i]  (+)= sum over n of grad_y[n,i] u[n,i] r[n]
struct RmsnormBackward {
  Tensor grad_y;    // [N, d]  T
  Tensor x;         // [N, d]  T
  Tensor w;         // [d]     T
  Tensor r;         // [N]     A
  Tensor residual;  // [N, d]  T, or null for 0
  Tensor grad_x;    // [N, d]  T; may be residual
  Tensor grad_w;    // [d]     A
  bool accumulate_grad_w;
};

// Rotates, in place, the first `heads` heads of every row (q and k of a fused row), halves n and
// n + h/2 together, by the angle of positions[n], or by minus that angle (the transpose: backward).
//   x'[i] = x[i] c - x[i+h/2] s,  x'[i+h/2] = x[i+h/2] c + x[i] s     (s negated when inverse)
struct Rope {
  Tensor x;          // [N, Q]     T, rotated in place
  Tensor positions;  // [N]        i32, each in [0, P)
  Tensor table;      // [P, h]     A: cos in the first half of a row, sin in the second
  std::int64_t heads;
  bool inverse;
};

// Sizes and constants of one layer's attention.
struct AttentionShape {
  std::int64_t q_heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  double scale;    // query_pre_attn_scalar^-0.5
  double softcap;  // 0: none
};

// Query i sees keys lo[i] <= j <= i of the flat token axis: causality, window, documents and batch
// rows are one interval. For query head a with kv head b = a / (H/K):
//   s_ij = scale q_i.k_j;  S_ij = softcap tanh(s_ij / softcap);  P_i = softmax_j S_ij;  o_i = sum_j
//   P_ij v_j
// lse[a,i] = log2(sum_j exp(S_ij)).
struct AttentionForward {
  AttentionShape shape;
  Tensor qkv;  // [N, Q]    T
  Tensor lo;   // [N]       i32, 0 <= lo[i] <= i, ascending
  Tensor o;    // [N, H h]  T
  Tensor lse;  // [H, N]    A
};

// With t = tanh(s / softcap), delta_i = sum_n grad_o_in o_in, dP_ij = grad_o_i . v_j:
//   dS_ij = P_ij (dP_ij - delta_i) (1 - t_ij^2) scale
//   grad_q_i = sum_j dS_ij k_j;  grad_k_j = sum_i dS_ij q_i;  grad_v_j = sum_i P_ij grad_o_i
// with grad_k, grad_v summed over the query heads of a group. hi[j] is the last query that sees key
// j.
struct AttentionBackward {
  AttentionShape shape;
  Tensor qkv;       // [N, Q]    T
  Tensor o;         // [N, H h]  T
  Tensor lse;       // [H, N]    A
  Tensor grad_o;    // [N, H h]  T
  Tensor lo;        // [N]       i32
  Tensor hi;        // [N]       i32, j <= hi[j] < N, ascending
  Tensor grad_qkv;  // [N, Q]    T, all written
  Tensor delta;     // [H, N]    A, scratch
};

// m = cast_T(gelu_tanh(gate) up),  gelu_tanh(g) = g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3)))
struct GegluForward {
  Tensor gate_up;  // [N, 2f]  T: gate in the first half of a row, up in the second
  Tensor m;        // [N, f]   T
};

// grad_up = grad_m gelu(g);  grad_gate = grad_m up gelu'(g)
struct GegluBackward {
  Tensor grad_m;        // [N, f]   T
  Tensor gate_up;       // [N, 2f]  T
  Tensor grad_gate_up;  // [N, 2f]  T; may be gate_up
};

// y = x w^T
struct LinearForward {
  Tensor x;  // [N, in]    T
  Tensor w;  // [out, in]  T
  Tensor y;  // [N, out]   T
};

// grad_x = grad_y w
struct LinearDgrad {
  Tensor grad_y;  // [N, out]   T
  Tensor w;       // [out, in]  T
  Tensor grad_x;  // [N, in]    T
};

// grad_w (+)= grad_y^T x
struct LinearWgrad {
  Tensor grad_y;  // [N, out]   T
  Tensor x;       // [N, in]    T
  Tensor grad_w;  // [out, in]  A
  bool accumulate;
};

// Bits of LmHeadLoss::flags.
enum LossFlag : std::int32_t {
  kNonFiniteLogit = 1,   // a logit before the cap was inf or NaN: tanh would hide it
  kNonFiniteLoss = 2,    // a row's loss is not finite
  kSaturatedTarget = 4,  // a target's 1 - t^2 < 1e-4: the cap stops its gradient
};

// The language-model head, final softcap and cross-entropy, chunked over tokens so that [N, V]
// never exists, with both gradients made in the forward pass. With z = x w^T, t = tanh(z /
// softcap), c = softcap t, p = softmax(c), y = targets[n], lse = log sum_j exp(c_j):
//   loss[n]  = lse - c_y      (0 where ignored);   z-loss[n] = z_weight lse^2
//   dz_j     = grad_scale ((1 + 2 z_weight lse) p_j - [j = y]) (1 - t_j^2)
//   grad_x[n] = sum_j dz_j w_j  (0 where ignored);   grad_w[j] (+)= sum_n dz_nj x_n
// The sum over non-targets is kept apart from the target's term, so neither a certain target nor a
// hopeless one loses digits. The chunk size follows from the workspace; loss bits do not depend on
// it.
struct LmHeadLoss {
  Tensor x;           // [N, d]  T
  Tensor w;           // [V, d]  T
  Tensor targets;     // [N]     i32 in [0, V) or kIgnoredTarget
  Tensor rows{};      // [valid] i32, the rows that have a target, ascending; null: found by the op
  double softcap;     // 0: none
  double z_weight;    // 0: none
  double grad_scale;  // 1 / valid targets of the whole step
  Tensor sums;        // [2]     f64, added to: sum of loss, sum of z-loss; rows in ascending order
  Tensor loss;        // [N]     A, or null
  Tensor
      top1;  // [N]     i32, or null: 1 where the target has the largest logit (lowest id on ties)
  Tensor grad_x;  // [N, d]  T; null: evaluation only, no gradient is computed
  Tensor grad_w;  // [V, d]  A; null in evaluation
  bool accumulate_grad_w;
  Tensor flags;      // [1]     i32, or-ed with LossFlag
  Tensor workspace;  // [bytes / 4]  i32, at least lm_head_workspace_bytes(); contents undefined
};

// logits[n] = softcap tanh(x[n] w^T / softcap), for generation.
struct LmHeadLogits {
  Tensor x;  // [N, d]  T
  Tensor w;  // [V, d]  T
  double softcap;
  Tensor logits;  // [N, V]  A
};

// block_sums[b] = sum of x[i]^2, in f64 and a fixed tree, over block b of kNormBlock elements.
inline constexpr std::int64_t kNormBlock = 16384;
struct BlockSumsOfSquares {
  Tensor x;           // [n]  A
  Tensor block_sums;  // [ceil(n / kNormBlock)]  f64
};

// norm = sqrt(sum of block_sums, in order);  factor = norm > max_norm ? max_norm / norm : 1
// max_norm 0: no clipping, factor 1.
struct ClipFactor {
  Tensor block_sums;  // [blocks]  f64
  double max_norm;
  Tensor norm;    // [1]  f64
  Tensor factor;  // [1]  f64
};

// Decoupled AdamW over a flat range, with g = factor grad:
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   master -= lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay master)
// computed in A; copy (when given) = cast_T(master).
struct Adamw {
  Tensor master;  // [n]  A, updated
  Tensor m;       // [n]  A, updated
  Tensor v;       // [n]  A, updated
  Tensor grad;    // [n]  A
  Tensor copy;    // [n]  T, or null when the compute weights are the master weights
  Tensor factor;  // [1]  f64
  double learning_rate;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  std::int64_t step;  // counts from 1
};

// y = cast(x), any two of f64, f32, bf16; rounds to nearest even.
struct Cast {
  Tensor x;  // [n]
  Tensor y;  // [n]
};

// y[i] = std_dev normal_quantile(u), u from word i of Philox stream (seed, kInit, stream);
// std_dev * quantile is formed in f64 and rounded once to f32, also where A is f64: a run starts
// from the same weights in every precision.
struct FillNormal {
  Tensor y;  // [n]  A
  std::uint64_t seed;
  std::uint32_t stream;
  double std_dev;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void embedding_forward(const EmbeddingForward& p) = 0;
  virtual void embedding_backward(const EmbeddingBackward& p) = 0;
  virtual void rmsnorm_forward(const RmsnormForward& p) = 0;
  virtual void rmsnorm_add_forward(const RmsnormAddForward& p) = 0;
  virtual void rmsnorm_backward(const RmsnormBackward& p) = 0;
  virtual void rope(const Rope& p) = 0;
  virtual void attention_forward(const AttentionForward& p) = 0;
  virtual void attention_backward(const AttentionBackward& p) = 0;
  virtual void geglu_forward(const GegluForward& p) = 0;
  virtual void geglu_backward(const GegluBackward& p) = 0;
  virtual void linear_forward(const LinearForward& p) = 0;
  virtual void linear_dgrad(const LinearDgrad& p) = 0;
  virtual void linear_wgrad(const LinearWgrad& p) = 0;
  virtual void lm_head_loss(const LmHeadLoss& p) = 0;
  virtual void lm_head_logits(const LmHeadLogits& p) = 0;
  virtual void block_sums_of_squares(const BlockSumsOfSquares& p) = 0;
  virtual void clip_factor(const ClipFactor& p) = 0;
  virtual void adamw(const Adamw& p) = 0;
  virtual void cast(const Cast& p) = 0;
  virtual void fill_normal(const FillNormal& p) = 0;

  // Bytes of LmHeadLoss::workspace for N tokens in type T, near `budget_bytes` but never less than
  // one row needs. `with_grad` false: evaluation.
  virtual std::size_t lm_head_workspace_bytes(DType dtype,
                                              std::int64_t tokens,
                                              std::int64_t hidden,
                                              std::int64_t vocab,
                                              std::size_t budget_bytes,
                                              bool with_grad) const = 0;
};

}  // namespace g2
