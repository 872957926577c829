// gemma2_train plan: what a run will need, before it runs.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "config/load.h"
#include "train/optimizer.h"
#include "train/run_options.h"

namespace g2::cli {
namespace {

void print_memory(const model::ActivationPlan& plan,
                  std::size_t moments,
                  const MemoryInfo& memory) {
  std::puts("memory");
  const auto line = [](const std::string& name, std::size_t bytes) {
    std::printf(
        "  %-20s %12s\n", name.c_str(), base::bytes_text(static_cast<double>(bytes)).c_str());
  };
  for (const model::PlanPart& part : plan.parts) line(part.name, part.bytes);
  line("moments", moments);
  const std::size_t total = plan.total_bytes + moments;
  line("total", total);
  if (memory.available > 0) {
    std::printf("  %s of %s are available here: %s\n",
                base::bytes_text(static_cast<double>(memory.available)).c_str(),
                base::bytes_text(static_cast<double>(memory.total)).c_str(),
                total <= memory.available ? "it fits"
                                          : "it does not fit (train.recompute \"layer\", a smaller "
                                            "train.micro_batch or data.seq_len need less)");
  }
}

}  // namespace

int plan(Args args) {
  ConfigOptions source;
  std::optional<double> rate;
  Options options("plan",
                  "Prints parameters, memory by part, FLOPs and tokens of a run; reads no data.");
  source.add_to(options);
  options.add("--tokens-per-s", rate, "measured rate, to tell how long the run will take");
  if (!options.parse(args)) return base::kOk;

  const config::LoadedConfig loaded = config::load_config(source.file, source.overrides);
  config::require_model(loaded);
  const config::RunConfig& c = loaded.config;
  const model::Gemma2Config model_config = open_model_config(c.model);
  const Backend backend = open_backend(c.device);
  const model::ParameterTable table(model_config);
  const model::ModelOptions model_options = train::model_options(c);

  std::printf("parameters  %lld (%s), of them %lld in the embedding\n",
              static_cast<long long>(table.parameter_count()),
              base::count_text(static_cast<double>(table.parameter_count())).c_str(),
              static_cast<long long>(model::embedding_parameter_count(model_config)));
  print_memory(model::plan_model(model_config, *backend.ops, model_options),
               train::Optimizer::bytes(table, model_options.dtype),
               backend.device->memory());
  const double flops = model::training_flops_per_token(model_config, c.data.seq_len);
  const auto step_tokens = static_cast<double>(c.train.global_batch * c.data.seq_len);
  const double tokens = step_tokens * static_cast<double>(c.train.max_steps);
  std::printf("work\n  %.4g FLOP a token, %.4g a step, %.4g in all\n",
              flops,
              flops * step_tokens,
              flops * tokens);
  std::printf("  %lld steps of %s tokens (%lld x %lld), %s tokens in all\n",
              static_cast<long long>(c.train.max_steps),
              base::count_text(step_tokens).c_str(),
              static_cast<long long>(c.train.global_batch),
              static_cast<long long>(c.data.seq_len),
              base::count_text(tokens).c_str());
  if (rate) {
    if (!(*rate > 0)) throw base::UsageError("--tokens-per-s must be above 0");
    std::printf("  %s at %s tokens/s\n",
                base::duration_text(tokens / *rate).c_str(),
                base::count_text(*rate).c_str());
  }
  return base::kOk;
}

}  // namespace g2::cli
