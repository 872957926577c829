// The parameter table: every tensor of a Gemma 2 once, with its name, shape, place in the flat
// buffers, initialisation, weight decay and bucket. Weights, gradients, moments and checkpoints all
// follow it.
//
// One flat buffer each holds the master weights, their gradients and moments. Tensors that the
// model multiplies as one lie side by side: q, k, v are one [(H+2K)h, d] matrix and gate, up one
// [2f, d]. A layer is one contiguous range, its bucket: matrices first, then the four norms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/gemma2_config.h"
#include "tensor/tensor.h"

namespace g2::model {

// Fused matrices and norms start at multiples of this many elements; the gaps hold zeros.
inline constexpr std::int64_t kParameterAlignment = 128;

struct Parameter {
  std::string name;                 // as in a Hugging Face folder
  std::vector<std::int64_t> shape;  // [out, in] or [d]
  std::int64_t offset = 0;          // elements from the start of a flat buffer
  std::int64_t count = 0;
  double init_std_dev = 0;    // 0: starts at zero (norm weights: gain 1 + 0)
  bool is_embedding = false;  // decays only if optimizer.decay_embedding says so
  bool decays = false;
  int bucket = 0;  // 0: embedding (and untied head), 1 + l: layer l, L + 1: final norm
};

// A flat range whose elements share one weight-decay rule.
struct DecayRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decays = false;
};

class ParameterTable {
 public:
  explicit ParameterTable(const Gemma2Config& config);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::int64_t flat_size() const { return flat_size_; }    // elements, gaps included
  std::int64_t parameter_count() const { return count_; }  // elements, gaps excluded

  const Parameter* find(std::string_view name) const;  // null when there is none
  const Parameter& at(std::string_view name) const;    // requires that it exists
  // The parameter that holds flat element `index`, or null for a gap.
  const Parameter* holding(std::int64_t index) const;

  // Ascending ranges that tile [0, flat_size()).
  std::vector<DecayRange> decay_ranges(bool decay_embedding) const;

 private:
  void add(std::string name, std::vector<std::int64_t> shape, double std_dev, int bucket);
  void align();

  std::vector<Parameter> parameters_;
  std::int64_t flat_size_ = 0;
  std::int64_t count_ = 0;
};

// The view of one parameter in a flat buffer [flat_size] of any dtype.
Tensor parameter_view(const Parameter& parameter, const Tensor& flat);

// One layer's tensors as the model uses them, as views of a flat buffer.
struct LayerTensors {
  Tensor qkv;             // [(H + 2K) h, d]
  Tensor o;               // [d, H h]
  Tensor gate_up;         // [2f, d]
  Tensor down;            // [d, f]
  Tensor input_norm;      // [d]
  Tensor post_attn_norm;  // [d]
  Tensor pre_ff_norm;     // [d]
  Tensor post_ff_norm;    // [d]
};

struct ModelTensors {
  Tensor embedding;  // [V, d]
  Tensor head;       // [V, d]; the embedding when tied
  std::vector<LayerTensors> layers;
  Tensor final_norm;  // [d]
};

ModelTensors model_views(const ParameterTable& table,
                         const Gemma2Config& config,
                         const Tensor& flat);

}  // namespace g2::model
