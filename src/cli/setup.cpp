#include "cli/setup.h"

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "model/resolve.h"
#include "train/run_options.h"

namespace g2::cli {

using base::cat;

Backend open_backend(const config::DeviceSettings& settings) {
  if (settings.kind == config::DeviceKind::kCuda) {
    throw base::UsageError(
        "device.kind is \"cuda\", but this build has no CUDA backend; use \"cpu\" or \"auto\"");
  }
  auto device = std::make_unique<cpu::CpuDevice>(static_cast<int>(settings.threads));
  Backend backend;
  backend.ops = std::make_unique<cpu::CpuOps>(device->pool());
  backend.pool = std::make_unique<base::ThreadPool>(static_cast<int>(settings.threads));
  backend.device = std::move(device);
  return backend;
}

model::Gemma2Config open_model_config(const config::ModelSettings& settings) {
  std::vector<std::string> warnings;
  model::Gemma2Config config = model::resolve_model(settings, warnings);
  for (const std::string& warning : warnings) base::log_warning(warning);
  return config;
}

void check_vocabulary(const model::Gemma2Config& model, const tokenizer::Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() > model.vocab_size) {
    throw base::UsageError(cat("data.tokenizer '",
                               tokenizer.name(),
                               "' has ",
                               tokenizer.vocab_size(),
                               " ids, model.vocab_size is ",
                               model.vocab_size,
                               "; it must be at least as large"));
  }
}

data::Dataset open_data(const config::RunConfig& config,
                        const model::Gemma2Config& model,
                        const tokenizer::Tokenizer& tokenizer,
                        base::ThreadPool& pool) {
  check_vocabulary(model, tokenizer);
  data::DatasetOptions options = train::dataset_options(config, tokenizer.special().pad);
  options.vocab_size = model.vocab_size;
  return data::open_dataset(options, tokenizer, pool);
}

void apply_log_settings(const config::LogSettings& settings) {
  constexpr base::LogLevel kLevels[] = {base::LogLevel::kDebug,
                                        base::LogLevel::kInfo,
                                        base::LogLevel::kWarning,
                                        base::LogLevel::kError,
                                        base::LogLevel::kOff};
  base::set_log_level(kLevels[static_cast<int>(settings.level)]);
  constexpr base::ProgressMode kModes[] = {
      base::ProgressMode::kAuto, base::ProgressMode::kOn, base::ProgressMode::kOff};
  base::set_progress_mode(kModes[static_cast<int>(settings.progress)]);
}

}  // namespace g2::cli
