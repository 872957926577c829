// log.jsonl: one JSON object a line, written and flushed as the run goes.
//
//   {"type":"header", ...}  first, and again after each resume ("resumed_at")
//   {"step":..,"loss":..,"grad_norm":..,"lr":..,"tokens":..,"tokens_per_s":..,"ms":..}  a step
//   {"step":..,"val_loss":..,"val_tokens":..,"val_bpb":..}                an evaluation
// Numbers read back to the same double; what is not finite or not known is null or left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace g2::train {

struct StepResult {
  std::int64_t step = 0;  // optimizer steps done
  double loss = 0;        // token mean over the whole step, without z-loss
  double z_loss = 0;      // likewise
  double grad_norm = 0;   // before clipping; loss and norm are NaN in a step without targets
  double learning_rate = 0;
  std::int64_t tokens = 0;         // seen since the run began, padding and ignored targets included
  std::int64_t valid_targets = 0;  // of this step
  double epoch = 0;                // samples seen / samples an epoch
  double ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;      // share of the device's peak, where that is known
  std::optional<double> mem_gib;  // peak memory of the process (CPU) or device
  std::string skipped;            // why the update was left out; empty: it was made
  std::int64_t skipped_steps = 0;
};

struct EvalResult {
  std::int64_t step = 0;
  double val_loss = 0;
  std::int64_t val_tokens = 0;
  std::optional<double> val_bpb;  // bits per byte of text, where the bytes are known
};

class MetricsLog {
 public:
  // Appends to `path`. Lines of steps after `keep_through_step` (of a run that goes back) are moved
  // to "<path>.abandoned-<n>"; nothing is kept, and all of it moved, when there is no such step.
  MetricsLog(const std::filesystem::path& path, std::optional<std::int64_t> keep_through_step);

  // Step of the last evaluation in the file; -1 when there is none.
  std::int64_t last_evaluation() const { return last_evaluation_; }

  void header(const nlohmann::ordered_json& fields);  // "type": "header" is added
  void step(const StepResult& result);
  void evaluation(const EvalResult& result);

 private:
  void write(const nlohmann::ordered_json& line);

  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t last_evaluation_ = -1;
};

}  // namespace g2::train
