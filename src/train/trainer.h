// The training loop: steps, evaluation, checkpoints, log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "config/config.h"
#include "data/dataset.h"
#include "model/model.h"
#include "train/checkpoint_store.h"
#include "train/metrics_log.h"
#include "train/optimizer.h"
#include "train/run_lock.h"

namespace g2::train {

// How a run starts.
struct ResumeOptions {
  enum class Mode {
    kNever,  // a run folder that already holds a run is an error
    kAuto,   // from the newest valid checkpoint, or from the start when there is none
    kPath,   // from this checkpoint or run folder, strictly
  };
  Mode mode = Mode::kNever;
  std::filesystem::path path;
  bool allow_change = false;  // settings that change the result may differ from the checkpoint's
};

// What the trainer works with; all of it outlives the trainer.
struct TrainerParts {
  const config::RunConfig& config;
  model::Gemma2Config model;
  Device& device;
  Ops& ops;
  const data::Dataset& dataset;
  std::uint64_t vocabulary_hash = 0;
  std::string version;  // of the program, for the log's header
};

enum class RunOutcome { kFinished, kAlreadyFinished, kInterrupted };

class Trainer {
 public:
  // Locks the run folder, allocates everything and loads or initialises the weights. Throws
  // UsageError (a run is there already, settings changed), FolderError, DataError, IoError,
  // DeviceError.
  Trainer(const TrainerParts& parts, const ResumeOptions& resume);

  // Trains until train.max_steps or a stop signal; a checkpoint is saved in both cases. Nothing of
  // the run folder changes before this. Throws NumericError at a non-finite loss or gradient
  // (train.on_nonfinite "stop"), before any update, and IoError when the last save fails.
  RunOutcome run();

  // One optimizer step, without evaluation, checkpoint or log: what run() repeats. For comparisons.
  StepResult train_step();

  // Called before a step is computed, after each step and after each evaluation; for progress
  // displays and comparisons. before_step may run the model, but not change its weights.
  std::function<void(std::int64_t step, const std::vector<data::Batch>& micro_batches)> before_step;
  std::function<void(const StepResult&)> on_step;
  std::function<void(const EvalResult&)> on_evaluation;

  model::Model& model() { return model_; }
  const Optimizer& optimizer() const { return optimizer_; }
  std::int64_t step() const { return info_.step; }

 private:
  void start(const ResumeOptions& resume);
  void resume_from(const std::filesystem::path& checkpoint, bool allow_change);
  void check_unchanged(const CheckpointInfo& saved, bool allow_change) const;
  void load_weights();
  void open_log();
  void write_header();

  void fill_step();
  model::LossSums run_micro_batches();
  std::string nonfinite_cause(const model::LossSums& sums, double grad_norm);
  std::string sample_list() const;
  void measure(StepResult& result, double seconds) const;
  void evaluate();
  void save();
  void save_if_possible();
  bool finished() const { return info_.step >= config_.train.max_steps; }
  bool evaluation_due() const;
  bool due(std::int64_t every) const { return every > 0 && info_.step % every == 0; }

  const TrainerParts parts_;
  const config::RunConfig& config_;
  base::RealFileSystem files_;
  RunLock lock_;
  CheckpointStore store_;
  model::Model model_;
  Optimizer optimizer_;
  std::unique_ptr<MetricsLog> log_;
  CheckpointInfo info_;
  std::optional<std::filesystem::path> resumed_from_;
  std::int64_t saved_step_ = -1;  // step of the newest checkpoint of this run
  std::int64_t skipped_steps_ = 0;
  std::vector<data::Batch> micro_batches_;  // of the current step
  std::int64_t valid_targets_ = 0;          // of the current step
  model::VisiblePairs visible_pairs_;       // of the current step
};

}  // namespace g2::train
