#include "model/parameter_table.h"

#include <algorithm>
#include <cassert>

#include "base/text.h"

namespace g2::model {

using base::cat;

ParameterTable::ParameterTable(const Gemma2Config& c) {
  const std::int64_t d = c.hidden_size;
  const std::int64_t q_width = c.num_attention_heads * c.head_dim;
  const std::int64_t kv_width = c.num_key_value_heads * c.head_dim;
  const double std_dev = c.initializer_range;

  add("model.embed_tokens.weight", {c.vocab_size, d}, std_dev, 0);
  parameters_.back().is_embedding = true;
  if (!c.tie_word_embeddings) {
    align();
    add("lm_head.weight", {c.vocab_size, d}, std_dev, 0);
  }
  for (int l = 0; l < c.num_hidden_layers; ++l) {
    const std::string prefix = cat("model.layers.", l, ".");
    align();
    add(prefix + "self_attn.q_proj.weight", {q_width, d}, std_dev, 1 + l);
    add(prefix + "self_attn.k_proj.weight", {kv_width, d}, std_dev, 1 + l);
    add(prefix + "self_attn.v_proj.weight", {kv_width, d}, std_dev, 1 + l);
    align();
    add(prefix + "self_attn.o_proj.weight", {d, q_width}, std_dev, 1 + l);
    align();
    add(prefix + "mlp.gate_proj.weight", {c.intermediate_size, d}, std_dev, 1 + l);
    add(prefix + "mlp.up_proj.weight", {c.intermediate_size, d}, std_dev, 1 + l);
    align();
    add(prefix + "mlp.down_proj.weight", {d, c.intermediate_size}, std_dev, 1 + l);
    for (const char* norm : {"input_layernorm",
                             "post_attention_layernorm",
                             "pre_feedforward_layernorm",
                             "post_feedforward_layernorm"}) {
      align();
      add(cat(prefix, norm, ".weight"), {d}, 0, 1 + l);
    }
  }
  align();
  add("model.norm.weight", {d}, 0, static_cast<int>(c.num_hidden_layers) + 1);
  align();
}

void ParameterTable::add(std::string name,
                         std::vector<std::int64_t> shape,
                         double std_dev,
                         int bucket) {
  Parameter p;
  p.name = std::move(name);
  p.offset = flat_size_;
  p.count = 1;
  for (const std::int64_t extent : shape) p.count *= extent;
  p.decays = shape.size() > 1;
  p.shape = std::move(shape);
  p.init_std_dev = std_dev;
  p.bucket = bucket;
  flat_size_ += p.count;
  count_ += p.count;
  parameters_.push_back(std::move(p));
}

void ParameterTable::align() {
  flat_size_ = (flat_size_ + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

const Parameter* ParameterTable::find(std::string_view name) const {
  const auto found = std::find_if(
      parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.name == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

const Parameter& ParameterTable::at(std::string_view name) const {
  const Parameter* found = find(name);
  assert(found != nullptr);
  return *found;
}

const Parameter* ParameterTable::holding(std::int64_t index) const {
  auto after = std::upper_bound(
      parameters_.begin(), parameters_.end(), index, [](std::int64_t i, const Parameter& p) {
        return i < p.offset;
      });
  if (after == parameters_.begin()) return nullptr;
  --after;
  return index < after->offset + after->count ? &*after : nullptr;
}

std::vector<DecayRange> ParameterTable::decay_ranges(bool decay_embedding) const {
  std::vector<DecayRange> ranges;
  for (const Parameter& p : parameters_) {
    const bool decays = p.is_embedding ? decay_embedding : p.decays;
    if (ranges.empty() || ranges.back().decays != decays) {
      if (!ranges.empty()) ranges.back().end = p.offset;
      ranges.push_back({p.offset, 0, decays});
    }
  }
  ranges.back().end = flat_size_;
  return ranges;
}

Tensor parameter_view(const Parameter& p, const Tensor& flat) {
  const Tensor range = flat.rows(p.offset, p.offset + p.count);
  return p.shape.size() == 1 ? range : range.reshaped({p.shape[0], p.shape[1]});
}

ModelTensors model_views(const ParameterTable& table, const Gemma2Config& c, const Tensor& flat) {
  const auto view = [&](const std::string& name) { return parameter_view(table.at(name), flat); };
  const auto fused = [&](const std::string& first, std::int64_t rows) {
    const Parameter& p = table.at(first);
    return flat.rows(p.offset, p.offset + rows * p.shape[1]).reshaped({rows, p.shape[1]});
  };
  ModelTensors tensors;
  tensors.embedding = view("model.embed_tokens.weight");
  tensors.head = c.tie_word_embeddings ? tensors.embedding : view("lm_head.weight");
  for (int l = 0; l < c.num_hidden_layers; ++l) {
    const std::string prefix = cat("model.layers.", l, ".");
    const std::int64_t heads = c.num_attention_heads + 2 * c.num_key_value_heads;
    tensors.layers.push_back({
        .qkv = fused(prefix + "self_attn.q_proj.weight", heads * c.head_dim),
        .o = view(prefix + "self_attn.o_proj.weight"),
        .gate_up = fused(prefix + "mlp.gate_proj.weight", 2 * c.intermediate_size),
        .down = view(prefix + "mlp.down_proj.weight"),
        .input_norm = view(prefix + "input_layernorm.weight"),
        .post_attn_norm = view(prefix + "post_attention_layernorm.weight"),
        .pre_ff_norm = view(prefix + "pre_feedforward_layernorm.weight"),
        .post_ff_norm = view(prefix + "post_feedforward_layernorm.weight"),
    });
  }
  tensors.final_norm = view("model.norm.weight");
  return tensors;
}

}  // namespace g2::model
