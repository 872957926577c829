#include "model/model.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace g2::model {
namespace {

ActivationOptions activation_options(const Gemma2Config& c, const Ops& ops, const ModelOptions& o) {
  return {
      .dtype = o.dtype,
      .max_tokens = o.max_tokens,
      .recompute = o.recompute,
      .training = o.training,
      .lm_head_workspace_bytes = ops.lm_head_workspace_bytes(
          o.dtype, o.max_tokens, c.hidden_size, c.vocab_size, o.lm_head_buffer_bytes, o.training)};
}

std::size_t table_bytes(const ParameterTable& table, DType dtype) {
  return static_cast<std::size_t>(table.flat_size()) * dtype_bytes(dtype);
}

std::size_t rope_bytes(const Gemma2Config& c, const ModelOptions& o) {
  return static_cast<std::size_t>(o.max_positions * c.head_dim) * dtype_bytes(work_dtype(o.dtype));
}

bool has_copy(DType dtype) {
  return dtype != work_dtype(dtype);
}

// angle = p / theta^(2n/h), with the power, its reciprocal and the product each rounded to A, as
// transformers forms them.
template <typename A>
std::vector<A> rope_rows(std::int64_t positions, std::int64_t head_dim, double theta) {
  const std::int64_t half = head_dim / 2;
  std::vector<A> rows(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t n = 0; n < half; ++n) {
    const A exponent = A(2 * n) / A(head_dim);
    const A inverse_frequency = A(1) / std::pow(A(theta), exponent);
    for (std::int64_t p = 0; p < positions; ++p) {
      const A angle = A(p) * inverse_frequency;
      rows[p * head_dim + n] = std::cos(angle);
      rows[p * head_dim + half + n] = std::sin(angle);
    }
  }
  return rows;
}

}  // namespace

double rounded_embedding_scale(std::int64_t hidden_size, DType dtype) {
  const double scale = std::sqrt(static_cast<double>(hidden_size));
  if (dtype == DType::kF64) return scale;
  const auto f32 = static_cast<float>(scale);
  return dtype == DType::kBF16 ? static_cast<double>(bf16(f32)) : static_cast<double>(f32);
}

ActivationPlan plan_model(const Gemma2Config& config, const Ops& ops, const ModelOptions& options) {
  const ParameterTable table(config);
  const DType acc = work_dtype(options.dtype);
  ActivationPlan plan;
  const auto add = [&](const char* name, std::size_t bytes) {
    plan.parts.push_back({name, bytes});
    plan.total_bytes += bytes;
  };
  add("master weights", table_bytes(table, acc));
  if (options.training) add("gradients", table_bytes(table, acc));
  if (has_copy(options.dtype)) add("compute weights", table_bytes(table, options.dtype));
  add("RoPE table", rope_bytes(config, options));
  add("batch inputs", BatchInputs::bytes(options.max_tokens));
  for (const PlanPart& part :
       plan_activations(config, activation_options(config, ops, options)).parts) {
    add(part.name.c_str(), part.bytes);
  }
  return plan;
}

Model::Model(const Gemma2Config& config, Device& device, Ops& ops, const ModelOptions& options)
    : config_(config),
      device_(device),
      ops_(ops),
      options_(options),
      activation_options_(activation_options(config, ops, options)),
      table_(config),
      embedding_scale_(rounded_embedding_scale(config.hidden_size, options.dtype)),
      inputs_(device, options.max_tokens) {
  const DType acc = work_dtype(options_.dtype);
  const std::size_t master_bytes = table_bytes(table_, acc);
  const std::size_t grad_bytes = options_.training ? master_bytes : 0;
  const std::size_t copy_bytes = has_copy(options_.dtype) ? table_bytes(table_, options_.dtype) : 0;
  state_memory_ = Buffer(device_, master_bytes + grad_bytes + copy_bytes);
  device_.fill_zero(state_memory_.data(), state_memory_.bytes());
  std::byte* state = state_memory_.data();
  master_ = Tensor(state, acc, {table_.flat_size()});
  if (grad_bytes > 0) grads_ = Tensor(state + master_bytes, acc, {table_.flat_size()});
  if (copy_bytes > 0) {
    copy_ = Tensor(state + master_bytes + grad_bytes, options_.dtype, {table_.flat_size()});
  }
  weights_ = model_views(table_, config_, copy_ ? copy_ : master_);
  if (grads_) gradients_ = model_views(table_, config_, grads_);

  activation_memory_ = Buffer(device_, plan_activations(config_, activation_options_).total_bytes);
  sums_memory_ = Buffer(device_, 3 * sizeof(double));
  sums_ = Tensor(sums_memory_.data(), DType::kF64, {2});
  flags_ = Tensor(sums_memory_.data() + 2 * sizeof(double), DType::kI32, {1});
  logits_memory_ = Buffer(
      device_,
      options_.training ? 0 : static_cast<std::size_t>(config_.vocab_size) * dtype_bytes(acc));
  fill_rope_table();
  begin_sums();
}

void Model::fill_rope_table() {
  rope_memory_ = Buffer(device_, rope_bytes(config_, options_));
  const DType acc = work_dtype(options_.dtype);
  rope_table_ = Tensor(rope_memory_.data(), acc, {options_.max_positions, config_.head_dim});
  const auto fill = [&](auto zero) {
    const auto rows =
        rope_rows<decltype(zero)>(options_.max_positions, config_.head_dim, config_.rope_theta);
    device_.copy_from_host(rope_table_.data, rows.data(), rope_table_.bytes());
  };
  if (acc == DType::kF64) {
    fill(0.0);
  } else {
    fill(0.0F);
  }
}

void Model::initialise(std::uint64_t seed) {
  std::uint32_t stream = 0;
  for (const Parameter& p : table_.parameters()) {
    const Tensor flat = master_.rows(p.offset, p.offset + p.count);
    if (p.init_std_dev > 0) {
      ops_.fill_normal({.y = flat, .seed = seed, .stream = stream, .std_dev = p.init_std_dev});
    } else {
      device_.fill_zero(flat.data, flat.bytes());
    }
    ++stream;
  }
  if (config_.pad_token_id >= 0) {  // nn.Embedding(padding_idx) starts that row at zero
    const Tensor row = master_view(table_.at("model.embed_tokens.weight"))
                           .rows(config_.pad_token_id, config_.pad_token_id + 1);
    device_.fill_zero(row.data, row.bytes());
  }
  refresh_compute_weights();
}

void Model::refresh_compute_weights() {
  if (copy_) ops_.cast({.x = master_, .y = copy_});
}

void Model::begin_sums() {
  device_.fill_zero(sums_memory_.data(), sums_memory_.bytes());
}

LossSums Model::read_sums() {
  std::byte host[3 * sizeof(double)];
  device_.copy_to_host(host, sums_memory_.data(), sizeof(host));
  LossSums sums;
  std::memcpy(&sums.loss, host, sizeof(double));
  std::memcpy(&sums.z_loss, host + sizeof(double), sizeof(double));
  std::memcpy(&sums.flags, host + 2 * sizeof(double), sizeof(std::int32_t));
  return sums;
}

AttentionShape Model::attention_shape() const {
  return {.q_heads = config_.num_attention_heads,
          .kv_heads = config_.num_key_value_heads,
          .head_dim = config_.head_dim,
          .scale = 1 / std::sqrt(config_.query_pre_attn_scalar),
          .softcap = config_.attn_logit_softcapping};
}

const BatchInputs::Intervals& Model::intervals(std::size_t l) const {
  return config_.is_sliding(static_cast<int>(l)) ? inputs_.sliding : inputs_.full;
}

void Model::rotate(const Tensor& qkv, bool inverse) {
  ops_.rope({.x = qkv,
             .positions = inputs_.positions,
             .table = rope_table_,
             .heads = config_.num_attention_heads + config_.num_key_value_heads,
             .inverse = inverse});
}

// From the normed input a to the two branch outputs y1, y2 of layer l.
void Model::layer_branches(std::size_t l) {
  const LayerTensors& w = weights_.layers[l];
  const LayerActivations& a = acts_.layers[l];
  ops_.linear_forward({.x = a.a, .w = w.qkv, .y = a.qkv});
  rotate(a.qkv, false);
  ops_.attention_forward(
      {.shape = attention_shape(), .qkv = a.qkv, .lo = intervals(l).lo, .o = a.o, .lse = a.lse});
  ops_.linear_forward({.x = a.o, .w = w.o, .y = a.y1});
  ops_.rmsnorm_add_forward({.branch = a.y1,
                            .w_post = w.post_attn_norm,
                            .residual = a.x0,
                            .w_pre = w.pre_ff_norm,
                            .eps = config_.rms_norm_eps,
                            .sum = a.x1,
                            .y = a.b,
                            .r_post = a.r_post_attn,
                            .r_pre = a.r_pre_ff});
  ops_.linear_forward({.x = a.b, .w = w.gate_up, .y = a.gate_up});
  ops_.geglu_forward({.gate_up = a.gate_up, .m = a.m});
  ops_.linear_forward({.x = a.m, .w = w.down, .y = a.y2});
}

// Adds the second branch to the residual stream and norms it for the next layer or the head.
void Model::finish_layer(std::size_t l) {
  const LayerActivations& a = acts_.layers[l];
  const bool last = l + 1 == acts_.layers.size();
  const LayerActivations* next = last ? nullptr : &acts_.layers[l + 1];
  ops_.rmsnorm_add_forward({.branch = a.y2,
                            .w_post = weights_.layers[l].post_ff_norm,
                            .residual = a.x1,
                            .w_pre = last ? weights_.final_norm : weights_.layers[l + 1].input_norm,
                            .eps = config_.rms_norm_eps,
                            .sum = last ? acts_.x_final : next->x0,
                            .y = last ? acts_.y_final : next->a,
                            .r_post = a.r_post_ff,
                            .r_pre = last ? acts_.r_final : next->r_in});
}

void Model::forward(const MicroBatch& batch) {
  assert(batch.tokens() <= options_.max_tokens);
  inputs_.upload(batch, config_.sliding_window, config_.pad_token_id);
  acts_ = bind_activations(config_, activation_options_, activation_memory_.data(), batch.tokens());
  const LayerActivations& first = acts_.layers[0];
  ops_.embedding_forward(
      {.ids = inputs_.ids, .table = weights_.embedding, .scale = embedding_scale_, .y = first.x0});
  ops_.rmsnorm_forward({.x = first.x0,
                        .w = weights_.layers[0].input_norm,
                        .eps = config_.rms_norm_eps,
                        .y = first.a,
                        .r = first.r_in});
  for (std::size_t l = 0; l < acts_.layers.size(); ++l) {
    layer_branches(l);
    finish_layer(l);
  }
}

void Model::lm_head(
    double grad_scale, bool with_grad, bool first, const Tensor& loss, const Tensor& top1) {
  ops_.lm_head_loss({.x = acts_.y_final,
                     .w = weights_.head,
                     .targets = inputs_.targets,
                     .rows = inputs_.target_rows,
                     .softcap = config_.final_logit_softcapping,
                     .z_weight = options_.z_weight,
                     .grad_scale = grad_scale,
                     .sums = sums_,
                     .loss = loss,
                     .top1 = top1,
                     .grad_x = with_grad ? acts_.grad_branch : Tensor(),
                     .grad_w = with_grad ? gradients_.head : Tensor(),
                     .accumulate_grad_w = !first,
                     .flags = flags_,
                     .workspace = acts_.workspace});
}

void Model::forward_loss(const MicroBatch& batch, const Tensor& token_loss, const Tensor& top1) {
  forward(batch);
  lm_head(0, false, false, token_loss, top1);
}

void Model::forward_backward(const MicroBatch& batch, double grad_scale, bool first) {
  assert(options_.training);
  forward(batch);
  lm_head(grad_scale, true, first, {}, {});
  norm_backward(acts_.grad_branch,
                acts_.x_final,
                weights_.final_norm,
                acts_.r_final,
                {},
                acts_.grad_x,
                gradients_.final_norm,
                first);
  for (std::size_t l = acts_.layers.size(); l-- > 0;) backward_layer(l, first);
  if (!config_.tie_word_embeddings && first) {  // tied: the head's part has just been written there
    device_.fill_zero(gradients_.embedding.data, gradients_.embedding.bytes());
  }
  ops_.embedding_backward({.groups = inputs_.groups,
                           .grad_y = acts_.grad_x,
                           .scale = embedding_scale_,
                           .grad_table = gradients_.embedding});
}

void Model::norm_backward(const Tensor& grad_y,
                          const Tensor& x,
                          const Tensor& w,
                          const Tensor& r,
                          const Tensor& residual,
                          const Tensor& grad_x,
                          const Tensor& grad_w,
                          bool first) {
  ops_.rmsnorm_backward({.grad_y = grad_y,
                         .x = x,
                         .w = w,
                         .r = r,
                         .residual = residual,
                         .grad_x = grad_x,
                         .grad_w = grad_w,
                         .accumulate_grad_w = !first});
}

// On entry grad_x is the gradient at the layer's output, on exit at its input.
void Model::backward_layer(std::size_t l, bool first) {
  const LayerActivations& a = acts_.layers[l];
  const double eps = config_.rms_norm_eps;
  if (options_.recompute != Recompute::kNone) {
    ops_.rmsnorm_forward(
        {.x = a.x0, .w = weights_.layers[l].input_norm, .eps = eps, .y = a.a, .r = a.r_in});
  }
  if (options_.recompute == Recompute::kLayer) layer_branches(l);
  if (options_.recompute == Recompute::kNorms) {
    ops_.rmsnorm_forward(
        {.x = a.x1, .w = weights_.layers[l].pre_ff_norm, .eps = eps, .y = a.b, .r = a.r_pre_ff});
    ops_.geglu_forward({.gate_up = a.gate_up, .m = a.m});
  }
  backward_feedforward(l, first);
  backward_attention(l, first);
}

void Model::backward_feedforward(std::size_t l, bool first) {
  const LayerTensors& w = weights_.layers[l];
  const LayerTensors& g = gradients_.layers[l];
  const LayerActivations& a = acts_.layers[l];
  const Tensor& branch = acts_.grad_branch;
  norm_backward(acts_.grad_x, a.y2, w.post_ff_norm, a.r_post_ff, {}, branch, g.post_ff_norm, first);
  ops_.linear_wgrad({.grad_y = branch, .x = a.m, .grad_w = g.down, .accumulate = !first});
  ops_.linear_dgrad({.grad_y = branch, .w = w.down, .grad_x = acts_.grad_m});
  const Tensor& grad_gate_up = a.gate_up;  // in place: gate and up are not needed again
  ops_.geglu_backward({.grad_m = acts_.grad_m, .gate_up = a.gate_up, .grad_gate_up = grad_gate_up});
  ops_.linear_wgrad({.grad_y = grad_gate_up, .x = a.b, .grad_w = g.gate_up, .accumulate = !first});
  ops_.linear_dgrad({.grad_y = grad_gate_up, .w = w.gate_up, .grad_x = branch});
  norm_backward(
      branch, a.x1, w.pre_ff_norm, a.r_pre_ff, acts_.grad_x, acts_.grad_x, g.pre_ff_norm, first);
}

void Model::backward_attention(std::size_t l, bool first) {
  const LayerTensors& w = weights_.layers[l];
  const LayerTensors& g = gradients_.layers[l];
  const LayerActivations& a = acts_.layers[l];
  const Tensor& branch = acts_.grad_branch;
  norm_backward(
      acts_.grad_x, a.y1, w.post_attn_norm, a.r_post_attn, {}, branch, g.post_attn_norm, first);
  ops_.linear_wgrad({.grad_y = branch, .x = a.o, .grad_w = g.o, .accumulate = !first});
  ops_.linear_dgrad({.grad_y = branch, .w = w.o, .grad_x = acts_.grad_o});
  ops_.attention_backward({.shape = attention_shape(),
                           .qkv = a.qkv,
                           .o = a.o,
                           .lse = a.lse,
                           .grad_o = acts_.grad_o,
                           .lo = intervals(l).lo,
                           .hi = intervals(l).hi,
                           .grad_qkv = acts_.grad_qkv,
                           .delta = acts_.delta});
  rotate(acts_.grad_qkv, true);
  ops_.linear_wgrad({.grad_y = acts_.grad_qkv, .x = a.a, .grad_w = g.qkv, .accumulate = !first});
  ops_.linear_dgrad({.grad_y = acts_.grad_qkv, .w = w.qkv, .grad_x = branch});
  norm_backward(
      branch, a.x0, w.input_norm, a.r_in, acts_.grad_x, acts_.grad_x, g.input_norm, first);
}

void Model::head_logits(const Tensor& x, const Tensor& logits) {
  ops_.lm_head_logits(
      {.x = x, .w = weights_.head, .softcap = config_.final_logit_softcapping, .logits = logits});
}

void Model::forward_logits(const MicroBatch& batch, const Tensor& logits) {
  forward(batch);
  head_logits(acts_.y_final, logits);
}

std::vector<float> Model::last_logits(const std::vector<std::int32_t>& ids) {
  assert(!options_.training && !ids.empty());
  const auto n = static_cast<std::int64_t>(ids.size());
  std::vector<std::int32_t> targets(ids.size(), kIgnoredTarget), positions(ids.size()),
      lo(ids.size(), 0);
  for (std::int64_t i = 0; i < n; ++i) positions[i] = static_cast<std::int32_t>(i);
  forward(
      {.rows = 1, .seq_len = n, .ids = ids, .targets = targets, .positions = positions, .lo = lo});
  const DType acc = work_dtype(options_.dtype);
  const Tensor logits(logits_memory_.data(), acc, {1, config_.vocab_size});
  head_logits(acts_.y_final.rows(n - 1, n), logits);
  std::vector<float> host(static_cast<std::size_t>(config_.vocab_size));
  if (acc == DType::kF32) {
    device_.copy_to_host(host.data(), logits.data, logits.bytes());
    return host;
  }
  std::vector<double> wide(host.size());
  device_.copy_to_host(wide.data(), logits.data, logits.bytes());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(wide[i]);
  return host;
}

}  // namespace g2::model
