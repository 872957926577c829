// gemma2_train train: the main job.
#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/debug_ops.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "cli/version.h"
#include "config/load.h"
#include "train/trainer.h"

namespace g2::cli {
namespace {

using base::cat;

train::ResumeOptions resume_options(const std::string& value, bool allow_change) {
  train::ResumeOptions options;
  options.allow_change = allow_change;
  if (value == "auto") {
    options.mode = train::ResumeOptions::Mode::kAuto;
  } else if (value != "never") {
    options.mode = train::ResumeOptions::Mode::kPath;
    options.path = value;
  }
  return options;
}

std::string fixed(double value, const char* format) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string step_line(const train::StepResult& r, std::int64_t max_steps) {
  return cat("step ",
             r.step,
             "/",
             max_steps,
             "  loss ",
             fixed(r.loss, "%.4f"),
             "  norm ",
             fixed(r.grad_norm, "%.3f"),
             "  lr ",
             fixed(r.learning_rate, "%.3g"),
             "  ",
             fixed(r.tokens_per_s, "%.0f"),
             " tokens/s  ",
             fixed(r.ms, "%.0f"),
             " ms",
             r.mfu ? cat("  mfu ", fixed(*r.mfu * 100, "%.1f"), "%") : "");
}

std::string evaluation_line(const train::EvalResult& r) {
  return cat("step ",
             r.step,
             "  validation loss ",
             fixed(r.val_loss, "%.4f"),
             r.val_bpb ? cat(", ", fixed(*r.val_bpb, "%.3f"), " bits per byte") : "",
             " over ",
             r.val_tokens,
             " tokens");
}

std::string data_line(const data::SampleCounts& c, const char* part) {
  return cat(part,
             ": ",
             c.documents,
             " documents, ",
             c.tokens,
             " tokens, ",
             c.samples,
             " rows",
             c.dropped_tokens > 0 ? cat(", ", c.dropped_tokens, " tokens at the end left out") : "",
             c.cut_documents > 0 ? cat(", ", c.cut_documents, " documents cut") : "",
             c.padding_tokens > 0 ? cat(", ", c.padding_tokens, " padding") : "");
}

void print_summary(const config::RunConfig& c,
                   const train::Trainer& trainer,
                   const data::Dataset& dataset,
                   const model::ParameterTable& table) {
  const std::int64_t tokens = c.train.global_batch * c.data.seq_len;
  base::log_info(data_line(dataset.train->counts(), "training data"));
  base::log_info(data_line(dataset.validation->counts(), "validation data"));
  if (!dataset.skipped.empty())
    base::log_warning(cat("left out: ", data::describe(dataset.skipped)));
  const std::int64_t rows = dataset.train->size();
  if (rows < c.train.global_batch) {
    base::log_warning(cat("a step takes ",
                          c.train.global_batch,
                          " rows, the data has ",
                          rows,
                          ": rows repeat within a step"));
  }
  base::log_info(cat(base::count_text(static_cast<double>(table.parameter_count())),
                     " parameters, ",
                     tokens,
                     " tokens a step, ",
                     trainer.step() > 0 ? cat(trainer.step(), " of ") : "",
                     c.train.max_steps,
                     " steps",
                     trainer.step() > 0 ? " done, " : ", ",
                     fixed(static_cast<double>(c.train.max_steps * c.train.global_batch) /
                               static_cast<double>(rows),
                           "%.2f"),
                     " epochs"));
}

train::RunOutcome run_with_display(train::Trainer& trainer, const config::RunConfig& c) {
  base::ProgressBar bar("training", "steps", static_cast<double>(c.train.max_steps));
  trainer.on_step = [&](const train::StepResult& r) {
    if (!r.skipped.empty()) return;  // the trainer has said why
    if (r.step % c.log.every == 0 || r.step == c.train.max_steps)
      base::log_info(step_line(r, c.train.max_steps));
    bar.update(static_cast<double>(r.step), cat("loss ", fixed(r.loss, "%.3f")));
  };
  trainer.on_evaluation = [](const train::EvalResult& r) { base::log_info(evaluation_line(r)); };
  return trainer.run();
}

// The last line, and the exit code.
int report(train::RunOutcome outcome, const config::RunConfig& c, std::int64_t step) {
  if (outcome == train::RunOutcome::kFinished) return base::kOk;
  const std::string where = cat("step ", step, " of ", c.train.max_steps);
  if (outcome == train::RunOutcome::kAlreadyFinished) {
    base::log_info(cat(c.run.dir, ": ", where, ": nothing left to train"));
    return base::kOk;
  }
  base::log_warning(cat("stopped at ",
                        where,
                        step > 0 ? ", the state is saved" : ", nothing to save yet",
                        "; go on with --resume auto"));
  return base::kInterrupted;
}

}  // namespace

int train(Args args) {
  ConfigOptions source;
  DebugOptions debug_options;
  std::string resume = "never";
  bool allow_change = false;
  bool dry_run = false;
  Options options("train",
                  "Trains the model of a config; stops cleanly on SIGTERM or Ctrl-C (exit 75).");
  source.add_to(options);
  options.add("--resume",
              resume,
              "auto: from the run folder's newest valid checkpoint, if there is one; never; or the "
              "path of a "
              "checkpoint or run folder");
  options.flag(
      "--allow-change", allow_change, "resume although settings that change the result differ");
  options.flag(
      "--dry-run", dry_run, "check config, data and memory, then stop before the first step");
  debug_options.add_to(options);
  if (!options.parse(args)) return base::kOk;

  base::install_stop_handlers();
  const config::LoadedConfig loaded = config::load_config(source.file, source.overrides);
  config::require_training(loaded);
  const config::RunConfig& c = loaded.config;
  apply_log_settings(c.log);
  Backend backend =
      open_backend(c.device, c.train.precision, std::filesystem::path(c.run.dir) / kMatmulPlans);
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
                         resume_options(resume, allow_change));
  print_summary(c, trainer, dataset, trainer.model().table());
  if (dry_run) {
    base::log_info("dry run: nothing was trained");
    return base::kOk;
  }
  const train::RunOutcome outcome = run_with_display(trainer, c);
  debug_ops.check();
  return report(outcome, c, trainer.step());
}

}  // namespace g2::cli
