#include "cli/setup.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#if G2_HAS_CUDA
#include "cuda/cuda_device.h"
#include "cuda/cuda_ops.h"
#endif
#include "model/resolve.h"
#include "train/run_options.h"

namespace g2::cli {

using base::cat;

namespace {

Backend cpu_backend(const config::DeviceSettings& settings) {
  auto device = std::make_unique<cpu::CpuDevice>(static_cast<int>(settings.threads));
  Backend backend;
  backend.ops = std::make_unique<cpu::CpuOps>(device->pool());
  backend.pool = std::make_unique<base::ThreadPool>(static_cast<int>(settings.threads));
  backend.device = std::move(device);
  return backend;
}

#if G2_HAS_CUDA
constexpr bool kHasCuda = true;

std::optional<std::string> why_no_gpu(int index) {
  return cuda::why_unusable(index);
}

Backend cuda_backend(const config::DeviceSettings& settings,
                     const std::filesystem::path& plan_file) {
  auto device = std::make_unique<cuda::CudaDevice>(static_cast<int>(settings.index));
  Backend backend;
  backend.ops = std::make_unique<cuda::CudaOps>(*device, plan_file);
  backend.pool = std::make_unique<base::ThreadPool>(static_cast<int>(settings.threads));
  backend.device = std::move(device);
  return backend;
}
#else
constexpr bool kHasCuda = false;

std::optional<std::string> why_no_gpu(int) {
  return "this build has no CUDA backend";
}

Backend cuda_backend(const config::DeviceSettings& settings, const std::filesystem::path&) {
  return cpu_backend(settings);
}
#endif

}  // namespace

Backend open_backend(const config::DeviceSettings& settings,
                     config::Precision precision,
                     const std::filesystem::path& plan_file) {
  using enum config::DeviceKind;
  if (settings.kind == kCpu) return cpu_backend(settings);
  const bool fp64 = precision == config::Precision::kFp64;
  const auto reason = why_no_gpu(static_cast<int>(settings.index));
  if (settings.kind == kCuda) {
    if (!kHasCuda) {
      throw base::UsageError(
          "device.kind is \"cuda\", but this build has no CUDA backend; use \"cpu\" or \"auto\"");
    }
    if (fp64) {
      throw base::UsageError(
          "device.kind is \"cuda\", which computes in fp32 and bf16; train.precision is \"fp64\": "
          "use device.kind \"cpu\"");
    }
    if (reason) throw base::DeviceError(cat("device.kind is \"cuda\", but ", *reason));
  }
  if (reason || fp64) {
    if (kHasCuda && !fp64) base::log_debug(cat("computing on the CPU: ", *reason));
    return cpu_backend(settings);
  }
  return cuda_backend(settings, plan_file);
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
