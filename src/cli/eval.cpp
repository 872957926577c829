// gemma2_train eval: loss, perplexity and bits per byte of a model on a text.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "config/load.h"
#include "train/evaluation.h"
#include "train/model_source.h"
#include "train/run_options.h"

namespace g2::cli {
namespace {

// What to measure on, and how: the run's own settings, where there is a run.
config::RunConfig eval_config(const train::ModelSource& source,
                              const std::vector<std::string>& files,
                              std::optional<std::int64_t> seq_len,
                              std::int64_t rows) {
  config::RunConfig c = source.run.value_or(config::RunConfig{});
  if (!source.run) {
    c.data.tokenizer = source.tokenizer;
    c.data.seq_len = 1024;
  }
  if (seq_len) c.data.seq_len = *seq_len;
  if (!files.empty()) {
    c.data.validation = files;
    c.data.train = files;  // not read further than its counts
  }
  c.train.micro_batch = rows;
  return c;
}

}  // namespace

int eval(Args args) {
  std::string path;
  std::vector<std::string> files;
  std::optional<std::int64_t> seq_len;
  std::int64_t sequences = 0;
  std::int64_t rows = 8;
  Options options("eval",
                  "Measures the loss of a run's, checkpoint's or Hugging Face folder's model.");
  options.add("path", path, "run folder, checkpoint or Hugging Face folder", Need::kRequired);
  options.add("--data", files, "files to measure on (default: the run's validation data)");
  options.add("--seq-len", seq_len, "tokens a row (default: the run's, else 1024)");
  options.add("--sequences", sequences, "rows to measure on; 0: all");
  options.add("--rows", rows, "rows at a time; changes memory, not the result");
  if (!options.parse(args)) return base::kOk;
  if (rows < 1 || sequences < 0 || seq_len.value_or(1) < 1) {
    throw base::UsageError("--rows and --seq-len must be at least 1, --sequences at least 0");
  }

  base::install_stop_handlers();
  const train::ModelSource source = train::open_model_source(path);
  if (!source.run && files.empty()) {
    throw base::UsageError(base::cat(
        path, " is no run, so it has no validation data; say what to measure on (--data FILE)"));
  }
  config::RunConfig c = eval_config(source, files, seq_len, rows);
  // Tokenised text is kept with the run, where there is one: <run>/checkpoints/step_...
  std::optional<base::TemporaryFolder> temporary;
  c.run.dir = source.run ? source.path.parent_path().parent_path().string()
                         : temporary.emplace().path().string();
  const Backend backend = open_backend(c.device, c.train.precision);
  const auto tokenizer = tokenizer::open_tokenizer(c.data.tokenizer);
  const data::Dataset dataset = open_data(c, source.config, *tokenizer, *backend.pool);
  model::ModelOptions model_options = train::model_options(c);
  model_options.training = false;
  model::Model model(source.config, *backend.device, *backend.ops, model_options);
  source.load(model);
  const auto result = train::evaluate(model, dataset, sequences, rows);
  if (!result) return base::kInterrupted;
  std::printf("%s\nloss %.6f  perplexity %.4f",
              source.path.c_str(),
              result->loss(),
              std::exp(result->loss()));
  if (const auto bits = result->bits_per_byte()) std::printf("  bits per byte %.4f", *bits);
  std::printf("  over %lld tokens\n", static_cast<long long>(result->tokens));
  return base::kOk;
}

}  // namespace g2::cli
