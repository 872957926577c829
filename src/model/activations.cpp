#include "model/activations.h"

#include <algorithm>
#include <cassert>

namespace g2::model {
namespace {

constexpr std::size_t kAlignment = 256;  // bytes

// Hands out memory in order and keeps the account. With a null base it only counts.
class Layout {
 public:
  Layout(std::byte* base, std::int64_t max_tokens, std::int64_t tokens)
      : base_(base), max_tokens_(max_tokens), tokens_(tokens) {}

  // [N, width], or [N] when width is 0, or [width, N] when `tokens_last`.
  Tensor rows(const char* part, DType dtype, std::int64_t width) {
    std::byte* data = reserve(part, dtype, max_tokens_ * std::max<std::int64_t>(width, 1));
    return width == 0 ? Tensor(data, dtype, {tokens_}) : Tensor(data, dtype, {tokens_, width});
  }
  Tensor heads(const char* part, DType dtype, std::int64_t heads) {
    return {reserve(part, dtype, max_tokens_ * heads), dtype, {heads, tokens_}};
  }
  Tensor words(const char* part, std::size_t bytes) {
    const auto count = static_cast<std::int64_t>((bytes + 3) / 4);
    return {reserve(part, DType::kI32, count), DType::kI32, {count}};
  }
  ActivationPlan take_plan() { return std::move(plan_); }

 private:
  std::byte* reserve(const char* part, DType dtype, std::int64_t elements) {
    const std::size_t wanted = static_cast<std::size_t>(elements) * dtype_bytes(dtype);
    const std::size_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    std::byte* data = base_ == nullptr ? nullptr : base_ + plan_.total_bytes;
    plan_.total_bytes += bytes;
    const auto found = std::find_if(
        plan_.parts.begin(), plan_.parts.end(), [&](const PlanPart& p) { return p.name == part; });
    if (found == plan_.parts.end()) {
      plan_.parts.push_back({part, bytes});
    } else {
      found->bytes += bytes;
    }
    return data;
  }

  std::byte* base_;
  std::int64_t max_tokens_;
  std::int64_t tokens_;
  ActivationPlan plan_;
};

Activations lay_out(const Gemma2Config& c, const ActivationOptions& options, Layout& layout) {
  const DType t = options.dtype;
  const DType acc = work_dtype(t);
  const std::int64_t d = c.hidden_size;
  const std::int64_t f = c.intermediate_size;
  const std::int64_t q_width = c.num_attention_heads * c.head_dim;
  const std::int64_t qkv_width = q_width + 2 * c.num_key_value_heads * c.head_dim;
  const bool keep_layer = options.training && options.recompute != Recompute::kLayer;
  const bool keep_norms = options.training && options.recompute == Recompute::kNone;

  Activations all;
  all.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
  for (std::size_t l = 0; l < all.layers.size(); ++l) {
    LayerActivations& a = all.layers[l];
    const bool first = l == 0;
    const LayerActivations& shared = all.layers[0];
    const auto kept =
        [&](bool keep, Tensor LayerActivations::*member, const char* part, std::int64_t width) {
          a.*member = keep || first ? layout.rows(part, t, width) : shared.*member;
        };
    kept(options.training, &LayerActivations::x0, "residual stream", d);
    kept(keep_norms, &LayerActivations::a, "normed inputs", d);
    kept(keep_layer, &LayerActivations::qkv, "q, k, v", qkv_width);
    kept(keep_layer, &LayerActivations::o, "attention output", q_width);
    kept(keep_layer, &LayerActivations::y1, "branch outputs", d);
    kept(keep_layer, &LayerActivations::x1, "residual stream", d);
    kept(keep_norms, &LayerActivations::b, "normed inputs", d);
    kept(keep_layer, &LayerActivations::gate_up, "gate and up", 2 * f);
    kept(keep_norms, &LayerActivations::m, "GeGLU output", f);
    kept(keep_layer, &LayerActivations::y2, "branch outputs", d);
    if (options.training || first) {
      a.r_in = layout.rows("row statistics", acc, 0);
      a.r_post_attn = layout.rows("row statistics", acc, 0);
      a.r_pre_ff = layout.rows("row statistics", acc, 0);
      a.r_post_ff = layout.rows("row statistics", acc, 0);
      a.lse = layout.heads("row statistics", acc, c.num_attention_heads);
    } else {
      a.r_in = shared.r_in;
      a.r_post_attn = shared.r_post_attn;
      a.r_pre_ff = shared.r_pre_ff;
      a.r_post_ff = shared.r_post_ff;
      a.lse = shared.lse;
    }
  }
  all.x_final = layout.rows("residual stream", t, d);
  all.y_final = layout.rows("normed inputs", t, d);
  all.r_final = layout.rows("row statistics", acc, 0);
  if (options.training) {
    all.grad_x = layout.rows("backward buffers", t, d);
    all.grad_branch = layout.rows("backward buffers", t, d);
    all.grad_m = layout.rows("backward buffers", t, f);
    all.grad_o = layout.rows("backward buffers", t, q_width);
    all.grad_qkv = layout.rows("backward buffers", t, qkv_width);
    all.delta = layout.heads("backward buffers", acc, c.num_attention_heads);
  }
  all.workspace = layout.words("lm-head chunk", options.lm_head_workspace_bytes);
  return all;
}

}  // namespace

ActivationPlan plan_activations(const Gemma2Config& config, const ActivationOptions& options) {
  Layout layout(nullptr, options.max_tokens, options.max_tokens);
  lay_out(config, options, layout);
  return layout.take_plan();
}

Activations bind_activations(const Gemma2Config& config,
                             const ActivationOptions& options,
                             std::byte* memory,
                             std::int64_t tokens) {
  assert(tokens <= options.max_tokens);
  Layout layout(memory, options.max_tokens, tokens);
  return lay_out(config, options, layout);
}

}  // namespace g2::model
