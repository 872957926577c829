// Weights to evaluate, generate from or start with: a run, a checkpoint or a Hugging Face folder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "config/config.h"
#include "model/gemma2_config.h"
#include "model/model.h"

namespace g2::train {

struct ModelSource {
  std::filesystem::path path;  // the checkpoint or folder the weights come from
  model::Gemma2Config config;
  std::string tokenizer;                    // as data.tokenizer
  std::optional<config::RunConfig> run;     // of a run or checkpoint
  std::function<void(model::Model&)> load;  // fills and refreshes the weights
};

// A run folder means its newest valid checkpoint. Throws UsageError when the path is none of these,
// IoError or DataError when it is damaged.
ModelSource open_model_source(const std::filesystem::path& path);

// Fills the master weights from a Hugging Face folder; notices go to the log.
void load_hf_into(const std::filesystem::path& folder, model::Model& model);

}  // namespace g2::train
