#include "train/measure.h"

#include <chrono>
#include <vector>

#include "base/philox.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/run_options.h"

namespace g2::train {
namespace {

constexpr double kEnoughSeconds = 2;
constexpr int kMostRepeats = 10;

// One document a row, each token but the last a target.
struct RandomBatch {
  std::vector<std::int32_t> ids, targets, positions, lo;
  std::int64_t rows, seq_len;

  RandomBatch(std::int64_t row_count, std::int64_t row_length, std::int64_t vocab_size)
      : rows(row_count), seq_len(row_length) {
    const std::int64_t tokens = rows * seq_len;
    for (std::int64_t n = 0; n < tokens; ++n) {
      const auto block = static_cast<std::uint64_t>(n);
      const std::uint32_t bits = base::random_block(0, base::RandomPurpose::kTest, 0, block)[0];
      ids.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab_size)));
      positions.push_back(static_cast<std::int32_t>(n % seq_len));
      lo.push_back(static_cast<std::int32_t>(n - n % seq_len));
    }
    for (std::int64_t n = 0; n < tokens; ++n) {
      const bool last = (n + 1) % seq_len == 0;
      targets.push_back(last ? kIgnoredTarget : ids[static_cast<std::size_t>(n + 1)]);
    }
  }
  model::MicroBatch view() const {
    return {.rows = rows,
            .seq_len = seq_len,
            .ids = ids,
            .targets = targets,
            .positions = positions,
            .lo = lo};
  }
};

// Mean seconds of body after one call that is not counted: the first touches cold memory.
template <typename Body>
double seconds_of(Device& device, const Body& body) {
  body();
  device.synchronize();
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  int repeats = 0;
  while (seconds < kEnoughSeconds && repeats < kMostRepeats) {
    body();
    device.synchronize();
    ++repeats;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return seconds / repeats;
}

}  // namespace

StepTime measure_step(const config::RunConfig& config,
                      const model::Gemma2Config& model_config,
                      Device& device,
                      Ops& ops) {
  model::Model model(model_config, device, ops, model_options(config));
  model.initialise(0);
  Optimizer optimizer(model, config.optimizer);
  const std::int64_t rows = config.train.micro_batch.value_or(config.train.global_batch);
  const RandomBatch batch(rows, config.data.seq_len, model_config.vocab_size);
  StepTime time;
  time.micro_batch_s = seconds_of(device, [&] {
    model.begin_sums();
    model.forward_backward(batch.view(), 1 / static_cast<double>(batch.targets.size()), true);
    model.read_sums();
  });
  std::int64_t step = 0;
  time.update_s = seconds_of(device, [&] {
    optimizer.gradient_norm();
    optimizer.update(config.optimizer.learning_rate, ++step);
  });
  const double micro_batches =
      static_cast<double>(config.train.global_batch) / static_cast<double>(rows);
  time.step_s = micro_batches * time.micro_batch_s + time.update_s;
  return time;
}

}  // namespace g2::train
