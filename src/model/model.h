// Gemma 2 itself: forward, loss and backward, written once over Ops (docs/architecture.md walks
// through one step). Source of the mathematics: Gemma2ForCausalLM of transformers, eager attention;
// what is rounded where is in docs/numerics.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/activations.h"
#include "model/gemma2_config.h"
#include "model/micro_batch.h"
#include "model/parameter_table.h"
#include "tensor/device.h"
#include "tensor/ops.h"

namespace g2::model {

struct ModelOptions {
  DType dtype = DType::kF32;       // compute type T
  std::int64_t max_tokens = 0;     // N of the largest micro-batch, padding included
  std::int64_t max_positions = 0;  // positions are below this (the longest row)
  Recompute recompute = Recompute::kNone;
  bool training = true;  // false: no gradients, forward only
  std::size_t lm_head_buffer_bytes = std::size_t{64} << 20;
  double z_weight = 0;
};

// Sums over the rows of all micro-batches since begin_sums().
struct LossSums {
  double loss = 0;  // token losses, without z-loss
  double z_loss = 0;
  std::int32_t flags = 0;  // LossFlag bits
};

// sqrt(hidden_size) rounded to the compute type, as transformers rounds it: in bf16 59.75 for 9B.
double rounded_embedding_scale(std::int64_t hidden_size, DType dtype);

// Bytes by part that a Model of these options allocates; the optimizer's moments are its own.
ActivationPlan plan_model(const Gemma2Config& config, const Ops& ops, const ModelOptions& options);

class Model {
 public:
  // Allocates everything; weights are zero until initialise() or master_view() fills them.
  Model(const Gemma2Config& config, Device& device, Ops& ops, const ModelOptions& options);

  const Gemma2Config& config() const { return config_; }
  const ModelOptions& options() const { return options_; }
  const ParameterTable& table() const { return table_; }
  Device& device() { return device_; }
  Ops& ops() { return ops_; }

  // Flat buffers [table().flat_size()].
  const Tensor& master() const { return master_; }  // A
  const Tensor& grads() const { return grads_; }    // A; null when not training
  // T; null where the master weights are the compute weights (f32, f64).
  const Tensor& compute_copy() const { return copy_; }
  Tensor master_view(const Parameter& p) const { return parameter_view(p, master_); }

  // Fills the master weights with N(0, initializer_range^2) and zeros (norms, the padding id's
  // row), from the seed and each parameter's place in the table alone; then refreshes the compute
  // weights.
  void initialise(std::uint64_t seed);
  // Casts the master weights to the compute type. Needed after they were written from outside.
  void refresh_compute_weights();

  void begin_sums();
  LossSums read_sums();

  // Loss and gradients of a micro-batch. grad_scale = 1 / valid targets of the whole step.
  // `first` of a step writes the gradients, later ones add to them.
  void forward_backward(const MicroBatch& batch, double grad_scale, bool first);

  // Loss only. token_loss ([N] of A on the device), top1 ([N] i32) may be null.
  void forward_loss(const MicroBatch& batch,
                    const Tensor& token_loss = {},
                    const Tensor& top1 = {});

  // Capped logits of every token, [N, V] of A on the device.
  void forward_logits(const MicroBatch& batch, const Tensor& logits);

  // Capped logits [V] of one row's last token, as floats. `ids` is one document from its start.
  std::vector<float> last_logits(const std::vector<std::int32_t>& ids);

 private:
  void forward(const MicroBatch& batch);
  void layer_branches(std::size_t l);
  void finish_layer(std::size_t l);
  void backward_layer(std::size_t l, bool first);
  void backward_feedforward(std::size_t l, bool first);
  void backward_attention(std::size_t l, bool first);
  void lm_head(
      double grad_scale, bool with_grad, bool first, const Tensor& loss, const Tensor& top1);
  void rotate(const Tensor& qkv, bool inverse);
  void norm_backward(const Tensor& grad_y,
                     const Tensor& x,
                     const Tensor& w,
                     const Tensor& r,
                     const Tensor& residual,
                     const Tensor& grad_x,
                     const Tensor& grad_w,
                     bool first);
  void head_logits(const Tensor& x, const Tensor& logits);
  void fill_rope_table();
  AttentionShape attention_shape() const;
  const BatchInputs::Intervals& intervals(std::size_t l) const;

  Gemma2Config config_;
  Device& device_;
  Ops& ops_;
  ModelOptions options_;
  ActivationOptions activation_options_;
  ParameterTable table_;
  double embedding_scale_;

  Buffer state_memory_, activation_memory_, rope_memory_, sums_memory_, logits_memory_;
  Tensor master_, grads_, copy_, rope_table_, sums_, flags_;
  ModelTensors weights_, gradients_;
  BatchInputs inputs_;
  Activations acts_;
};

}  // namespace g2::model
