// gemma2_train plan: what a run will need, before it runs.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "config/load.h"
#include "train/measure.h"
#include "train/optimizer.h"
#include "train/run_options.h"

namespace g2::cli {
namespace {

void print_bytes(const std::string& name, std::size_t bytes) {
  std::printf("  %-20s %12s\n", name.c_str(), base::bytes_text(static_cast<double>(bytes)).c_str());
}

// Whether it fits; true also where the device does not tell.
bool print_memory(const config::RunConfig& c,
                  const model::Gemma2Config& model_config,
                  const model::ParameterTable& table,
                  const Backend& backend) {
  const model::ModelOptions options = train::model_options(c);
  const model::ActivationPlan plan = model::plan_model(model_config, *backend.ops, options);
  const std::size_t moments = train::Optimizer::bytes(table, options.dtype);
  std::puts("memory");
  for (const model::PlanPart& part : plan.parts) print_bytes(part.name, part.bytes);
  print_bytes("moments", moments);
  const std::size_t total = plan.total_bytes + moments;
  print_bytes("total", total);
  const MemoryInfo memory = backend.device->memory();
  if (memory.available == 0) return true;
  std::printf("  %s of %s are available here: %s\n",
              base::bytes_text(static_cast<double>(memory.available)).c_str(),
              base::bytes_text(static_cast<double>(memory.total)).c_str(),
              total <= memory.available ? "it fits"
                                        : "it does not fit (train.recompute \"layer\", a smaller "
                                          "train.micro_batch or data.seq_len need less)");
  return total <= memory.available;
}

// A checkpoint holds the master weights and both moments, of the type that they have in memory. The
// best and keep_every's come on top of the newest ones.
void print_disk(const config::RunConfig& c, const model::ParameterTable& table) {
  const std::size_t one = train::Optimizer::bytes(table, train::model_options(c).dtype) / 2 * 3;
  std::puts("disk");
  print_bytes("a checkpoint", one);
  print_bytes("keep_last and one", one * static_cast<std::size_t>(c.checkpoint.keep_last + 1));
}

double step_tokens(const config::RunConfig& c) {
  return static_cast<double>(c.train.global_batch * c.data.seq_len);
}

void print_work(const config::RunConfig& c, const model::Gemma2Config& model_config) {
  const double flops = model::training_flops_per_token(model_config, c.data.seq_len);
  const double tokens = step_tokens(c) * static_cast<double>(c.train.max_steps);
  std::printf("work\n  %.4g FLOP a token, %.4g a step, %.4g in all\n",
              flops,
              flops * step_tokens(c),
              flops * tokens);
  std::printf("  %lld steps of %s tokens (%lld x %lld), %s tokens in all\n",
              static_cast<long long>(c.train.max_steps),
              base::count_text(step_tokens(c)).c_str(),
              static_cast<long long>(c.train.global_batch),
              static_cast<long long>(c.data.seq_len),
              base::count_text(tokens).c_str());
}

void print_data(const config::RunConfig& c,
                const model::Gemma2Config& model_config,
                const Backend& backend) {
  const auto tokenizer = tokenizer::open_tokenizer(c.data.tokenizer);
  const data::Dataset dataset = open_data(c, model_config, *tokenizer, *backend.pool);
  const data::SampleCounts& counts = dataset.train->counts();
  std::printf("data\n  %lld documents, %s tokens, %lld rows: %.2f epochs\n",
              static_cast<long long>(counts.documents),
              base::count_text(static_cast<double>(counts.tokens)).c_str(),
              static_cast<long long>(counts.samples),
              static_cast<double>(c.train.max_steps * c.train.global_batch) /
                  static_cast<double>(counts.samples));
}

void print_time(const config::RunConfig& c, double tokens_per_s) {
  const double tokens = step_tokens(c) * static_cast<double>(c.train.max_steps);
  std::printf("time\n  %s at %s tokens/s\n",
              base::duration_text(tokens / tokens_per_s).c_str(),
              base::count_text(tokens_per_s).c_str());
}

void print_measured(const config::RunConfig& c, const train::StepTime& time) {
  print_time(c, step_tokens(c) / time.step_s);
  std::printf("  a step %.4g s: a micro-batch %.4g s, the update %.4g s\n",
              time.step_s,
              time.micro_batch_s,
              time.update_s);
}

}  // namespace

int plan(Args args) {
  ConfigOptions source;
  std::optional<double> rate;
  bool measure = false;
  bool read_data = false;
  Options options("plan", "Prints parameters, memory by part, FLOPs and tokens of a run.");
  source.add_to(options);
  options.add("--tokens-per-s", rate, "measured rate, to tell how long the run will take");
  options.flag("--measure", measure, "train on random tokens for some seconds, to tell the same");
  options.flag("--data", read_data, "also read the data (text is tokenised), to tell the epochs");
  options.at_most_one({"--tokens-per-s", "--measure"});
  if (!options.parse(args)) return base::kOk;
  if (rate && !(*rate > 0)) throw base::UsageError("--tokens-per-s must be above 0");

  const config::LoadedConfig loaded = config::load_config(source.file, source.overrides);
  config::require_model(loaded);
  if (read_data) config::require_training(loaded);
  const config::RunConfig& c = loaded.config;
  const model::Gemma2Config model_config = open_model_config(c.model);
  const base::TemporaryFolder plans;  // products are chosen as the run will choose them
  const Backend backend = open_backend(c.device, c.train.precision, plans.path() / kMatmulPlans);
  const model::ParameterTable table(model_config);

  std::printf("parameters  %lld (%s), of them %lld in the embedding\n",
              static_cast<long long>(table.parameter_count()),
              base::count_text(static_cast<double>(table.parameter_count())).c_str(),
              static_cast<long long>(model::embedding_parameter_count(model_config)));
  const bool fits = print_memory(c, model_config, table, backend);
  print_disk(c, table);
  print_work(c, model_config);
  if (read_data) print_data(c, model_config, backend);
  if (rate) print_time(c, *rate);
  if (measure) {
    if (!fits) throw base::UsageError("--measure: the run does not fit into the memory here");
    print_measured(c, train::measure_step(c, model_config, *backend.device, *backend.ops));
  }
  return base::kOk;
}

}  // namespace g2::cli
