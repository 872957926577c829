#include "train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/stop_signal.h"

namespace g2::train {

std::optional<double> Evaluation::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return loss_sum / std::log(2.0) / static_cast<double>(*bytes);
}

model::MicroBatch micro_batch(const data::Batch& batch) {
  return {.rows = batch.rows,
          .seq_len = batch.seq_len,
          .ids = batch.ids,
          .targets = batch.targets,
          .positions = batch.positions,
          .lo = batch.lo};
}

std::optional<Evaluation> evaluate(model::Model& model,
                                   const data::Dataset& dataset,
                                   std::int64_t limit,
                                   std::int64_t rows) {
  const data::Samples& samples = *dataset.validation;
  const std::int64_t count = limit > 0 ? std::min(limit, samples.size()) : samples.size();
  Evaluation result;
  result.bytes = 0;
  data::Batch batch;
  model.begin_sums();
  for (std::int64_t first = 0; first < count; first += rows) {
    if (base::stop_requested()) return std::nullopt;
    samples.fill_in_order(first, std::min(rows, count - first), batch);
    model.forward_loss(micro_batch(batch));
    result.tokens += batch.valid_targets;
    const std::optional<std::int64_t> more = data::target_bytes(dataset, batch);
    result.bytes = result.bytes && more ? std::optional(*result.bytes + *more) : std::nullopt;
  }
  result.loss_sum = model.read_sums().loss;
  return result;
}

}  // namespace g2::train
