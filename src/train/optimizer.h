// AdamW over the flat buffers, with clipping by the global gradient norm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "model/model.h"

namespace g2::train {

class Optimizer {
 public:
  // Moments start at zero.
  Optimizer(model::Model& model, const config::OptimizerSettings& settings);

  // Bytes of both moments, for the memory plan.
  static std::size_t bytes(const model::ParameterTable& table, DType dtype);

  // Norm of the whole gradient, from a fixed tree of f64 block sums; the clip factor stays on the
  // device.
  double gradient_norm();
  // Updates master weights, moments and the compute copy. `update` counts the updates from 1, for
  // the correction of the moments' bias. After gradient_norm().
  void update(double learning_rate, std::int64_t update);

  // What is not finite, "model.layers.3.mlp.down_proj.weight[512] is nan", or nothing: the first
  // weight in the order of the forward pass, the first gradient in that of the backward pass. For
  // the message about a bad step; gradient_norm() must come again before an update.
  std::optional<std::string> nonfinite_weight();
  std::optional<std::string> nonfinite_gradient();

  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }

 private:
  enum class Search { kUpwards, kDownwards };
  std::optional<std::string> nonfinite_element(const Tensor& flat, Search direction);

  model::Model& model_;
  config::OptimizerSettings settings_;
  Buffer memory_;
  Tensor m_, v_;          // [flat_size] A
  Tensor block_sums_;     // [blocks] f64
  Tensor norm_, factor_;  // [1] f64
};

}  // namespace g2::train
