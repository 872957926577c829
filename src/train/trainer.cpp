#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "model/gemma2_config.h"
#include "train/evaluation.h"
#include "train/schedule.h"

namespace g2::train {
namespace {

using base::cat;

constexpr std::size_t kSamplesNamed = 8;  // in messages about a bad step

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void count_pairs(const data::Batch& batch, std::int64_t window, model::VisiblePairs& pairs) {
  for (std::size_t n = 0; n < batch.lo.size(); ++n) {
    const std::int64_t keys = static_cast<std::int64_t>(n) - batch.lo[n] + 1;
    pairs.full += keys;
    pairs.sliding += std::min(keys, window);
  }
}

}  // namespace

RunOutcome Trainer::run() {
  open_log();
  if (finished() && !evaluation_due()) return RunOutcome::kAlreadyFinished;
  write_header();
  if (evaluation_due()) evaluate();
  while (!finished() && !base::stop_requested()) {
    const StepResult result = train_step();
    log_->step(result);
    if (on_step) on_step(result);
    if (evaluation_due()) evaluate();
    if (due(config_.checkpoint.every)) save_if_possible();
  }
  save();
  return finished() && !evaluation_due() ? RunOutcome::kFinished : RunOutcome::kInterrupted;
}

// Before the first step, every eval_every steps and after the last. Asks the log, so that an
// evaluation a signal cut short is made up for by the resumed run, and none is made twice.
bool Trainer::evaluation_due() const {
  return (due(config_.train.eval_every) || info_.step == 0 || finished()) &&
         log_->last_evaluation() != info_.step;
}

StepResult Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  fill_step();
  StepResult result;
  result.step = info_.step + 1;
  if (before_step) before_step(result.step, micro_batches_);
  result.valid_targets = valid_targets_;
  result.learning_rate =
      learning_rate(config_.schedule, config_.optimizer.learning_rate, result.step);
  if (valid_targets_ == 0) {
    result.skipped = "no valid target in the step";
    result.loss = result.grad_norm = std::nan("");
  } else {
    const model::LossSums sums = run_micro_batches();
    const auto count = static_cast<double>(valid_targets_);
    result.loss = sums.loss / count;
    result.z_loss = sums.z_loss / count;
    result.grad_norm = optimizer_.gradient_norm();
    result.skipped = nonfinite_cause(sums, result.grad_norm);
  }
  if (result.skipped.empty()) {
    // The moments have seen only the steps that were not skipped.
    optimizer_.update(result.learning_rate, result.step - skipped_steps_);
  } else {
    ++skipped_steps_;
    base::log_warning(cat("step ", result.step, " skipped: ", result.skipped));
  }
  info_.step = result.step;
  info_.cursor += config_.train.global_batch;
  info_.tokens += config_.train.global_batch * config_.data.seq_len;
  info_.counters["skipped_steps"] = skipped_steps_;
  measure(result, seconds_since(start));
  return result;
}

// The count of valid targets is known before the first backward pass: it divides every gradient.
void Trainer::fill_step() {
  const std::int64_t rows = config_.train.global_batch;
  const std::int64_t micro = config_.train.micro_batch.value_or(rows);
  micro_batches_.resize(static_cast<std::size_t>((rows + micro - 1) / micro));
  valid_targets_ = 0;
  visible_pairs_ = {};
  std::int64_t first = 0;
  for (data::Batch& batch : micro_batches_) {
    parts_.dataset.train->fill(info_.cursor + first, std::min(micro, rows - first), batch);
    valid_targets_ += batch.valid_targets;
    count_pairs(batch, parts_.model.sliding_window, visible_pairs_);
    first += batch.rows;
  }
}

model::LossSums Trainer::run_micro_batches() {
  const double grad_scale = 1 / static_cast<double>(valid_targets_);
  model_.begin_sums();
  bool first = true;
  for (const data::Batch& batch : micro_batches_) {
    model_.forward_backward(micro_batch(batch), grad_scale, first);
    first = false;
  }
  return model_.read_sums();
}

// "" when all is finite. Otherwise what is not and where; thrown, unless the config says skip.
std::string Trainer::nonfinite_cause(const model::LossSums& sums, double grad_norm) {
  std::string cause;
  if ((sums.flags & kNonFiniteLogit) != 0) cause = "a logit is not finite";
  if (!std::isfinite(sums.loss)) cause = cat("the loss is ", base::number_text(sums.loss));
  if (cause.empty() && std::isfinite(grad_norm)) return cause;
  const std::optional<std::string> weight = optimizer_.nonfinite_weight();
  const std::optional<std::string> gradient = optimizer_.nonfinite_gradient();
  if (!cause.empty()) cause += ", ";
  cause += weight     ? cat("the weight ", *weight)
           : gradient ? cat("the gradient of ", *gradient)
                      : cat("the gradient's norm is ", base::number_text(grad_norm));
  cause += cat(" (samples ", sample_list(), ")");
  // A bad weight makes every later step bad: skipping would go on for ever.
  if (weight || config_.train.on_nonfinite == config::OnNonfinite::kStop) {
    throw base::NumericError(
        cat("step ",
            info_.step + 1,
            ": ",
            cause,
            "; nothing was updated and the checkpoints are as they were. Lower "
            "optimizer.learning_rate, look at the samples, or set train.on_nonfinite "
            "to \"skip\""));
  }
  return cause;
}

std::string Trainer::sample_list() const {
  std::string text;
  std::size_t named = 0;
  std::size_t all = 0;
  for (const data::Batch& batch : micro_batches_) {
    all += batch.samples.size();
    for (const std::int64_t sample : batch.samples) {
      if (named < kSamplesNamed) text += cat(named++ == 0 ? "" : ", ", sample);
    }
  }
  return all > named ? cat(text, " and ", all - named, " more") : text;
}

void Trainer::measure(StepResult& result, double seconds) const {
  const std::int64_t tokens = config_.train.global_batch * config_.data.seq_len;
  result.tokens = info_.tokens;
  result.epoch =
      static_cast<double>(info_.cursor) / static_cast<double>(parts_.dataset.train->size());
  result.ms = seconds * 1e3;
  result.tokens_per_s = static_cast<double>(tokens) / seconds;
  result.mem_gib = static_cast<double>(parts_.device.memory().used) / (1 << 30);
  result.skipped_steps = skipped_steps_;
  if (parts_.device.peak_flops() > 0) {
    result.mfu = model::training_flops(parts_.model, tokens, visible_pairs_) / seconds /
                 parts_.device.peak_flops();
  }
}

// The best result is kept as a checkpoint of its own (checkpoint.keep_best). The untrained model is
// none.
void Trainer::evaluate() {
  const std::int64_t rows = config_.train.micro_batch.value_or(config_.train.global_batch);
  const std::optional<Evaluation> evaluation =
      train::evaluate(model_, parts_.dataset, config_.train.eval_sequences, rows);
  if (!evaluation) return;
  const EvalResult result{
      info_.step, evaluation->loss(), evaluation->tokens, evaluation->bits_per_byte()};
  log_->evaluation(result);
  if (on_evaluation) on_evaluation(result);
  const bool best = info_.step > 0 && std::isfinite(result.val_loss) &&
                    (!info_.best || result.val_loss < info_.best->val_loss);
  if (!best) return;
  info_.best = BestResult{info_.step, result.val_loss};
  if (config_.checkpoint.keep_best) save_if_possible();
}

// A full disk must not end a run whose state is well: only the last save has to succeed.
void Trainer::save_if_possible() {
  try {
    save();
  } catch (const base::IoError& e) {
    base::log_error(cat(e.what(), "; training goes on, the next save tries again"));
  }
}

void Trainer::save() {
  if (saved_step_ == info_.step || info_.step == 0) return;
  const model::ParameterTable& table = model_.table();
  std::vector<CheckpointRange> ranges;
  std::vector<std::vector<std::byte>> snapshots;
  for (const auto& [kind, tensor] : {std::pair("master", model_.master()),
                                     std::pair("m", optimizer_.m()),
                                     std::pair("v", optimizer_.v())}) {
    std::vector<std::byte>& host = snapshots.emplace_back(tensor.bytes());
    parts_.device.copy_to_host(host.data(), tensor.data, tensor.bytes());
    for (CheckpointRange& range : flat_ranges(table, kind, host.data(), tensor.dtype)) {
      ranges.push_back(std::move(range));
    }
  }
  store_.save(info_, table, ranges);
  saved_step_ = info_.step;
  base::log_debug(cat("checkpoint of step ", info_.step, " saved"));
}

}  // namespace g2::train
