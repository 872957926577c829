// The activation plan: every buffer a forward and backward pass needs, laid out before the run in
// one allocation. The same function plans (no memory) and binds (views), so the two cannot differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gemma2_config.h"
#include "tensor/tensor.h"

namespace g2::model {

// What the backward pass computes again instead of keeping it.
enum class Recompute {
  kNone,
  kNorms,  // normed inputs and the GeGLU product
  kLayer,  // everything but each layer's input
};

struct ActivationOptions {
  DType dtype = DType::kF32;    // T
  std::int64_t max_tokens = 0;  // N of the largest micro-batch
  Recompute recompute = Recompute::kNone;
  bool training = true;  // false: forward only, one layer's buffers serve all
  std::size_t lm_head_workspace_bytes = 0;
};

// What one layer leaves for its backward pass. Buffers may be shared with other layers (Recompute).
struct LayerActivations {
  Tensor x0, a, qkv, o, y1, x1, b, gate_up, m, y2;  // [N, ...] T
  Tensor r_in, r_post_attn, r_pre_ff, r_post_ff;    // [N] A
  Tensor lse;                                       // [H, N] A
};

struct Activations {
  std::vector<LayerActivations> layers;
  Tensor x_final, y_final;          // [N, d] T
  Tensor r_final;                   // [N] A
  Tensor grad_x, grad_branch;       // [N, d] T
  Tensor grad_m, grad_o, grad_qkv;  // [N, f], [N, H h], [N, Q] T
  Tensor delta;                     // [H, N] A
  Tensor workspace;                 // lm-head, i32 words
};

// One line of the plan: bytes of a part, as `gemma2_train plan` prints it.
struct PlanPart {
  std::string name;
  std::size_t bytes = 0;
};

struct ActivationPlan {
  std::vector<PlanPart> parts;  // in order of first use
  std::size_t total_bytes = 0;
};

ActivationPlan plan_activations(const Gemma2Config& config, const ActivationOptions& options);

// Views for `tokens` <= options.max_tokens into a buffer of plan.total_bytes at `memory`.
Activations bind_activations(const Gemma2Config& config,
                             const ActivationOptions& options,
                             std::byte* memory,
                             std::int64_t tokens);

}  // namespace g2::model
