// A small run on generated text, started, stopped and resumed as the command does it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/stop_signal.h"
#include "config/load.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "model/resolve.h"
#include "tests/support/support.h"
#include "tokenizer/tokenizer.h"
#include "train/run_options.h"
#include "train/trainer.h"

namespace g2::train {

// Documents of unlike lengths, some far longer than a row, some far shorter.
inline void write_corpus(const std::filesystem::path& path, int documents = 40) {
  std::mt19937_64 rng(42);
  std::string text;
  for (int d = 0; d < documents; ++d) {
    std::string line;
    const std::uint64_t words = d % 5 == 0 ? 1 : 3 + rng() % 20;
    for (std::uint64_t w = 0; w < words; ++w) {
      line += std::string(1 + rng() % 3, static_cast<char>('a' + rng() % 6)) + " ";
    }
    text += nlohmann::json{{"text", line}}.dump() + "\n";
  }
  test::write_text(path, text);
}

inline const char* const kSmallRun = R"({
  "run": {"seed": 3},
  "model": {"vocab_size": 260, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "query_pre_attn_scalar": 10, "sliding_window": 5, "attn_logit_softcapping": 3,
            "final_logit_softcapping": 4, "max_position_embeddings": 16, "initializer_range": 0.2},
  "data": {"seq_len": 16, "packing": "documents", "validation": 0.15},
  "train": {"max_steps": 9, "global_batch": 8, "micro_batch": 4, "eval_every": 3},
  "optimizer": {"learning_rate": 1e-2},
  "schedule": {"warmup_steps": 2},
  "checkpoint": {"every": 2}
})";

// Everything a Trainer works with, of one config.
struct RunParts {
  config::RunConfig config;
  cpu::CpuDevice device;
  cpu::CpuOps ops;
  model::Gemma2Config model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  data::Dataset dataset;

  RunParts(const config::RunConfig& run, int threads)
      : config(run),
        device(threads),
        ops(device.pool()),
        model(resolved(run.model)),
        tokenizer(tokenizer::open_tokenizer(run.data.tokenizer)),
        dataset(data::open_dataset(
            dataset_options(run, tokenizer->special().pad), *tokenizer, device.pool())) {}

  TrainerParts parts() {
    return {.config = config,
            .model = model,
            .device = device,
            .ops = ops,
            .dataset = dataset,
            .vocabulary_hash = tokenizer->vocabulary_hash(),
            .version = "test"};
  }

 private:
  static model::Gemma2Config resolved(const config::ModelSettings& settings) {
    std::vector<std::string> warnings;
    return model::resolve_model(settings, warnings);
  }
};

struct RunEnd {
  RunOutcome outcome = RunOutcome::kFinished;
  std::vector<StepResult> steps;
  std::vector<EvalResult> evaluations;
  std::vector<std::byte> state;  // master weights and both moments
};

struct How {
  ResumeOptions resume = {};
  int threads = 2;
  std::int64_t stop_after = -1;  // as if SIGTERM came during this step
  std::function<void(Trainer&)> before = {};
  std::function<void(const StepResult&)> on_step = {};
};

inline std::vector<std::byte> state_of(Trainer& trainer) {
  std::vector<std::byte> all;
  for (const Tensor& tensor :
       {trainer.model().master(), trainer.optimizer().m(), trainer.optimizer().v()}) {
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    all.insert(all.end(), begin, begin + tensor.bytes());
  }
  return all;
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { write_corpus(folder_ / "text.jsonl"); }
  ~TrainerTest() override { base::set_stop_requested(false); }

  // The small run in folder `name`, with --set overrides.
  config::RunConfig config(const std::string& name, std::vector<std::string> overrides = {}) const {
    overrides.push_back("run.dir=" + (folder_ / name).string());
    overrides.push_back("data.train=" + (folder_ / "text.jsonl").string());
    return config::parse_config(kSmallRun, "small run", overrides).config;
  }

  static ResumeOptions automatic(bool allow_change = false) {
    return {.mode = ResumeOptions::Mode::kAuto, .path = {}, .allow_change = allow_change};
  }
  static ResumeOptions from(const std::filesystem::path& path) {
    return {.mode = ResumeOptions::Mode::kPath, .path = path, .allow_change = false};
  }

  static RunEnd run(const config::RunConfig& config, const How& how = How()) {
    RunParts parts(config, how.threads);
    Trainer trainer(parts.parts(), how.resume);
    RunEnd end;
    trainer.on_step = [&](const StepResult& r) {
      end.steps.push_back(r);
      if (how.on_step) how.on_step(r);
      if (r.step == how.stop_after) base::set_stop_requested(true);
    };
    trainer.on_evaluation = [&](const EvalResult& r) { end.evaluations.push_back(r); };
    if (how.before) how.before(trainer);
    end.outcome = trainer.run();
    base::set_stop_requested(false);
    end.state = state_of(trainer);
    return end;
  }

  // The step and evaluation lines of log.jsonl without the columns that tell of time and machine.
  std::vector<nlohmann::json> log(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(base::read_file(folder_ / (name + "/log.jsonl")));
    for (std::string line; std::getline(text, line);) {
      nlohmann::json object = nlohmann::json::parse(line);
      if (object.contains("type")) continue;
      for (const char* key : {"ms", "tokens_per_s", "mem_gib"}) object.erase(key);
      lines.push_back(object);
    }
    return lines;
  }

  std::vector<std::string> checkpoints(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& path : list_checkpoints(folder_ / name)) names.push_back(path.filename());
    return names;
  }

  test::TempFolder folder_;
};

}  // namespace g2::train
