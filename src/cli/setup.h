// From a run's config to the things a command works with: device, tokenizer, data, model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "config/config.h"
#include "data/dataset.h"
#include "model/gemma2_config.h"
#include "tensor/device.h"
#include "tensor/ops.h"
#include "tokenizer/tokenizer.h"

namespace g2::cli {

// A run's choice of matrix products, in its folder.
inline constexpr const char* kMatmulPlans = "matmul_plans.json";

// A device with its ops, and the CPU threads for everything else.
struct Backend {
  std::unique_ptr<base::ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

// device.kind "auto" takes a GPU when this build and machine have one and it computes in
// `precision`. Throws UsageError for "cuda" in a build without it or with fp64, DeviceError where
// the GPU cannot be used. `plan_file`: where a training run keeps its choice of matrix products
// (cuda/matmul.h); empty for commands whose speed does not matter.
Backend open_backend(const config::DeviceSettings& settings,
                     config::Precision precision,
                     const std::filesystem::path& plan_file = {});

// The model section resolved; warnings of a Hugging Face folder go to the log. Throws UsageError
// when the tokenizer has more ids than the vocabulary.
model::Gemma2Config open_model_config(const config::ModelSettings& settings);
void check_vocabulary(const model::Gemma2Config& model, const tokenizer::Tokenizer& tokenizer);

data::Dataset open_data(const config::RunConfig& config,
                        const model::Gemma2Config& model,
                        const tokenizer::Tokenizer& tokenizer,
                        base::ThreadPool& pool);

// Log level and progress settings, before anything is printed.
void apply_log_settings(const config::LogSettings& settings);

}  // namespace g2::cli
