// The loss over a fixed list of samples.
#pragma once

#include <cstdint>
#include <optional>

#include "data/dataset.h"
#include "model/model.h"

namespace g2::train {

struct Evaluation {
  double loss_sum = 0;                // nats over all valid targets
  std::int64_t tokens = 0;            // valid targets
  std::optional<std::int64_t> bytes;  // of text, where known

  double loss() const { return loss_sum / static_cast<double>(tokens); }
  std::optional<double> bits_per_byte() const;
};

// Over the first `limit` validation samples (0: all), `rows` at a time: a token mean, the same for
// every `rows`. Nothing when a stop was asked for meanwhile.
std::optional<Evaluation> evaluate(model::Model& model,
                                   const data::Dataset& dataset,
                                   std::int64_t limit,
                                   std::int64_t rows);

// A data batch as the model reads it.
model::MicroBatch micro_batch(const data::Batch& batch);

}  // namespace g2::train
