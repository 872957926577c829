// How a run begins: fresh, from a Hugging Face folder, or from a checkpoint.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "config/effective.h"
#include "config/load.h"
#include "train/checkpoint_reader.h"
#include "train/model_source.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace g2::train {
namespace {

namespace fs = std::filesystem;
using base::cat;

// Settings that may differ at a resume: they change nothing that is computed, or what they name is
// compared itself (the model's sizes, the data's hash).
bool may_change(std::string_view path) {
  for (const std::string_view free : {"run.dir",
                                      "log.",
                                      "device.",
                                      "checkpoint.",
                                      "model.",
                                      "data.train",
                                      "data.validation",
                                      "train.max_steps",
                                      "train.eval_every",
                                      "train.eval_sequences",
                                      "train.on_nonfinite"}) {
    if (path.starts_with(free)) return true;
  }
  return false;
}

DType dtype_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::kFp64:
      return DType::kF64;
    case config::Precision::kBf16:
      return DType::kBF16;
    case config::Precision::kFp32:
      break;
  }
  return DType::kF32;
}

RetentionPolicy retention(const config::CheckpointSettings& s) {
  return {.keep_last = s.keep_last, .keep_every = s.keep_every, .keep_best = s.keep_best};
}

nlohmann::ordered_json counts_json(const data::SampleCounts& c) {
  return {{"documents", c.documents},
          {"tokens", c.tokens},
          {"samples", c.samples},
          {"dropped_tokens", c.dropped_tokens},
          {"cut_documents", c.cut_documents},
          {"padding_tokens", c.padding_tokens}};
}

}  // namespace

model::ModelOptions model_options(const config::RunConfig& c) {
  model::ModelOptions options;
  options.dtype = dtype_of(c.train.precision);
  options.max_tokens = c.train.micro_batch.value_or(c.train.global_batch) * c.data.seq_len;
  options.max_positions = c.data.seq_len;
  options.recompute = c.train.recompute == config::Recompute::kLayer   ? model::Recompute::kLayer
                      : c.train.recompute == config::Recompute::kNorms ? model::Recompute::kNorms
                                                                       : model::Recompute::kNone;
  options.lm_head_buffer_bytes = static_cast<std::size_t>(c.train.lm_head_buffer_mib) << 20;
  options.z_weight = c.train.z_loss;
  return options;
}

Trainer::Trainer(const TrainerParts& parts, const ResumeOptions& resume)
    : parts_(parts),
      config_(parts.config),
      lock_(parts.config.run.dir),
      store_(files_, lock_, retention(parts.config.checkpoint)),
      model_(parts.model, parts.device, parts.ops, model_options(parts.config)),
      optimizer_(model_, parts.config.optimizer) {
  info_.seed = static_cast<std::uint64_t>(config_.run.seed);
  info_.model = parts_.model;
  info_.config_json = config::effective_json(config_);
  info_.config_hash = config::config_hash(config_);
  info_.vocabulary_hash = base::hex64(parts_.vocabulary_hash);
  info_.data_hash = base::hex64(parts_.dataset.hash);
  std::vector<CheckpointRange> ranges;
  for (const char* kind : {"master", "m", "v"}) {
    for (const CheckpointRange& range :
         flat_ranges(model_.table(), kind, nullptr, model_.master().dtype)) {
      ranges.push_back(range);
    }
  }
  store_.check_space(ranges);
  start(resume);
}

void Trainer::start(const ResumeOptions& resume) {
  const fs::path folder = config_.run.dir;
  std::optional<fs::path> checkpoint;
  if (resume.mode == ResumeOptions::Mode::kPath) {
    checkpoint = require_checkpoint(resume.path);
  } else if (resume.mode == ResumeOptions::Mode::kAuto) {
    checkpoint = find_latest_valid(folder);
  } else if (fs::exists(folder / "log.jsonl")) {
    throw base::UsageError(cat(folder.string(),
                               " already holds a run; go on with it (--resume auto), or choose "
                               "another folder (--set run.dir=...)"));
  }
  if (checkpoint) {
    resume_from(*checkpoint, resume.allow_change);
  } else {
    info_.run_id = base::unique_suffix();
    load_weights();
  }
  base::write_file_atomic(folder / "config.json", info_.config_json + "\n");
  open_log(checkpoint ? std::optional(info_.step) : std::nullopt);
}

void Trainer::load_weights() {
  if (config_.model.path) {
    load_hf_into(*config_.model.path, model_);
  } else {
    model_.initialise(static_cast<std::uint64_t>(config_.run.seed));
  }
}

void Trainer::resume_from(const fs::path& path, bool allow_change) {
  const Checkpoint checkpoint(path);
  const CheckpointInfo& saved = checkpoint.info();
  check_unchanged(saved, allow_change);
  const CheckpointInfo started = std::exchange(info_, saved);
  info_.config_json = started.config_json;
  info_.config_hash = started.config_hash;
  info_.data_hash = started.data_hash;
  skipped_steps_ = info_.counters["skipped_steps"];
  for (const auto& [kind, tensor] : {std::pair("master", model_.master()),
                                     std::pair("m", optimizer_.m()),
                                     std::pair("v", optimizer_.v())}) {
    std::vector<std::byte> host(tensor.bytes());
    checkpoint.read_into(flat_ranges(model_.table(), kind, host.data(), tensor.dtype));
    parts_.device.copy_from_host(tensor.data, host.data(), tensor.bytes());
  }
  model_.refresh_compute_weights();
  store_.adopt(path);
  saved_step_ = fs::weakly_canonical(path).parent_path().parent_path() ==
                        fs::weakly_canonical(config_.run.dir)
                    ? info_.step
                    : -1;
  if (saved_step_ < 0) {  // a new run that begins with the state of another
    info_.parent = cat(saved.run_id, '/', saved.step);
    info_.run_id = base::unique_suffix();
  }
  base::log_info(cat("resumed from ", path.string(), " at step ", info_.step));
}

void Trainer::check_unchanged(const CheckpointInfo& saved, bool allow_change) const {
  if (saved.model != parts_.model) {
    throw base::UsageError(
        "resume: the checkpoint's model has other sizes or constants than the config's; use the "
        "config of its run folder");
  }
  if (saved.vocabulary_hash != info_.vocabulary_hash) {
    throw base::UsageError(cat("resume: the checkpoint was trained with vocabulary ",
                               saved.vocabulary_hash,
                               ", data.tokenizer is now ",
                               info_.vocabulary_hash,
                               "; use the same tokenizer"));
  }
  std::string changes;
  const config::LoadedConfig before =
      config::parse_config(saved.config_json, "the checkpoint's config");
  for (const config::Difference& d : config::differences(before.config, config_)) {
    if (!may_change(d.path))
      changes += cat(changes.empty() ? "" : ", ", d.path, " ", d.before, " -> ", d.after);
  }
  if (saved.data_hash != info_.data_hash) {
    changes += cat(
        changes.empty() ? "" : ", ", "the data's hash ", saved.data_hash, " -> ", info_.data_hash);
  }
  if (changes.empty()) return;
  const std::int64_t next = saved.step + 1;
  const double old_rate =
      learning_rate(before.config.schedule, before.config.optimizer.learning_rate, next);
  const double new_rate = learning_rate(config_.schedule, config_.optimizer.learning_rate, next);
  if (old_rate != new_rate) {
    changes += cat(" (rate of step ",
                   next,
                   ": ",
                   base::number_text(old_rate),
                   " -> ",
                   base::number_text(new_rate),
                   ")");
  }
  if (!allow_change) {
    throw base::UsageError(
        cat("resume: settings that change the result differ from the checkpoint's: ",
            changes,
            "; set them back, or go on all the same with --allow-change"));
  }
  base::log_warning(cat("resumed with other settings: ", changes));
}

void Trainer::open_log(std::optional<std::int64_t> resumed_at) {
  log_ = std::make_unique<MetricsLog>(fs::path(config_.run.dir) / "log.jsonl", resumed_at);
  nlohmann::ordered_json header{
      {"version", parts_.version},
      {"config_hash", config::config_hash(config_)},
      {"data_hash", info_.data_hash},
      {"vocabulary_hash", info_.vocabulary_hash},
      {"device", parts_.device.name()},
      {"parameters", model_.table().parameter_count()},
      {"flops_per_token", model::training_flops_per_token(parts_.model, config_.data.seq_len)},
      {"train", counts_json(parts_.dataset.train->counts())},
      {"validation", counts_json(parts_.dataset.validation->counts())}};
  if (!parts_.dataset.skipped.empty()) {
    for (const auto& [reason, entry] : parts_.dataset.skipped)
      header["skipped_documents"][reason] = entry.count;
  }
  if (resumed_at) header["resumed_at"] = *resumed_at;
  log_->header(header);
}

}  // namespace g2::train
