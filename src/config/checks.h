// What a single setting's row cannot say: settings that contradict one another.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"

namespace g2::config {

struct Conflict {
  std::string path;   // the setting to blame,
  std::string other;  // the one it disagrees with; either may stand in the file
  std::string text;   // "train.global_batch is 6, must be a multiple of train.micro_batch (4)"
};

// Requires the values load.h fills in.
std::optional<Conflict> first_conflict(const RunConfig& config);

// The sentence that says what is missing to know the model, or to train it; "" when nothing is.
std::string missing_for_model(const RunConfig& config);
std::string missing_for_training(const RunConfig& config);

}  // namespace g2::config
