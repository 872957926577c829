// gemma2_train verify: trains a config and compares every step with a reference log.
#include "train/verify.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/debug_ops.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "cli/version.h"
#include "config/load.h"

namespace g2::cli {
namespace {

using base::cat;

// The losses of both sides as a log that scripts/plot_log.py draws.
void plot(const train::VerifyReport& report, const std::string& image) {
  const std::string log = image + ".jsonl";
  std::ofstream file(log);
  for (const train::Comparison& c : report.comparisons) {
    if (c.quantity != "loss") continue;
    file << "{\"step\":" << c.step << ",\"loss\":" << base::number_text(c.ours)
         << ",\"reference_loss\":" << base::number_text(c.reference) << "}\n";
  }
  file.close();
  const std::string script = std::string(G2_SOURCE_ROOT) + "/scripts/plot_log.py";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execlp("python3", "python3", script.c_str(), log.c_str(), "--out", image.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0 || status != 0) {
    throw base::IoError(cat("verify: no plot: python3 ", script, " failed; its data is in ", log));
  }
  std::filesystem::remove(log);
}

}  // namespace

int verify(Args args) {
  ConfigOptions source;
  DebugOptions debug_options;
  std::string reference;
  std::string batches;
  std::string image;
  std::string peer;
  std::int64_t steps = 0;
  Options options(
      "verify",
      "Trains a config and compares each step with a reference log; 0 only if all agree.");
  source.add_to(options);
  options.add(
      "--reference", reference, "reference log (JSON Lines, made by scripts/make_reference.py)");
  options.add("--peer",
              peer,
              "a bf16 log of the reference's implementation: a bf16 run may be 1.5 times as far "
              "from the reference "
              "as this one, instead of within the tolerances");
  options.add("--steps", steps, "compare the first N steps only; 0: all of the reference's");
  options.add("--plot", image, "draw both losses to this PNG");
  options.add(
      "--export-batches", batches, "write the token batches for scripts/make_reference.py instead");
  debug_options.add_to(options);
  options.at_most_one({"--reference", "--export-batches"});
  if (!options.parse(args)) return base::kOk;
  if (reference.empty() == batches.empty()) {
    throw base::UsageError(
        "verify: give a reference log (--reference FILE), or --export-batches FILE");
  }
  if (steps < 0) throw base::UsageError("--steps must be 0 or more");

  base::install_stop_handlers();
  const config::LoadedConfig loaded = config::load_config(source.file, source.overrides);
  config::require_training(loaded);
  config::RunConfig c = loaded.config;
  // A run folder of its own: a verification is no run to go on with.
  const base::TemporaryFolder run;
  c.run.dir = (run.path() / "run").string();
  apply_log_settings(c.log);
  Backend backend = open_backend(c.device, c.train.precision);
  const DebugOps debug_ops(debug_options, backend);
  const model::Gemma2Config model_config = open_model_config(c.model);
  const auto tokenizer = tokenizer::open_tokenizer(c.data.tokenizer);
  const data::Dataset dataset = open_data(c, model_config, *tokenizer, *backend.pool);
  train::Trainer trainer({.config = c,
                          .model = model_config,
                          .device = *backend.device,
                          .ops = *backend.ops,
                          .dataset = dataset,
                          .vocabulary_hash = tokenizer->vocabulary_hash(),
                          .version = version_text()},
                         {});
  const std::string init_hash = train::weights_hash(trainer.model());
  if (!batches.empty()) {
    train::export_batches(
        c, model_config, dataset, init_hash, steps > 0 ? steps : c.train.max_steps, batches);
    return base::kOk;
  }
  const train::ReferenceLog log = train::read_reference(reference);
  train::require_same_run(log, c, dataset, init_hash);
  const train::VerifyReport report = train::verify(trainer, log, steps);
  if (base::stop_requested()) return base::kInterrupted;
  bool holds = report.holds();
  if (peer.empty()) {
    std::fputs(train::report_table(report).c_str(), stdout);
  } else {
    const auto distances = train::distances(report, log, train::read_reference(peer));
    std::fputs(train::distance_table(distances).c_str(), stdout);
    holds = std::all_of(
        distances.begin(), distances.end(), [](const train::Distance& d) { return d.holds(); });
  }
  if (!image.empty()) plot(report, image);
  debug_ops.check();
  std::puts(holds ? "verify: all agree" : "verify: FAILED");
  return holds ? base::kOk : base::kData;
}

}  // namespace g2::cli
