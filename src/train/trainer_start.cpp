// How a run begins: fresh, from a Hugging Face folder, or from a checkpoint.
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
#include "train/run_options.h"
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

RetentionPolicy retention(const config::CheckpointSettings& s) {
  return {.keep_last = s.keep_last, .keep_every = s.keep_every, .keep_best = s.keep_best};
}

bool is_in(const fs::path& checkpoint, const fs::path& run_folder) {
  return fs::weakly_canonical(checkpoint).parent_path().parent_path() ==
         fs::weakly_canonical(run_folder);
}

// " (rate of step 1001: 0.003 -> 0.0029)" of the first step from `next` on whose rate is another.
std::string rate_change(const config::RunConfig& before,
                        const config::RunConfig& after,
                        std::int64_t next) {
  for (std::int64_t step = next; step <= after.train.max_steps; ++step) {
    const double old_rate = learning_rate(before.schedule, before.optimizer.learning_rate, step);
    const double new_rate = learning_rate(after.schedule, after.optimizer.learning_rate, step);
    if (old_rate == new_rate) continue;
    return cat(" (rate of step ",
               step,
               ": ",
               base::number_text(old_rate),
               " -> ",
               base::number_text(new_rate),
               ")");
  }
  return "";
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
  const bool holds_run = fs::exists(folder / "log.jsonl") || !list_checkpoints(folder).empty();
  if (resume.mode == ResumeOptions::Mode::kAuto) {
    resumed_from_ = find_latest_valid(folder);
  } else if (resume.mode == ResumeOptions::Mode::kPath) {
    resumed_from_ = require_checkpoint(resume.path);
  }
  const bool goes_on =
      resumed_from_ ? is_in(*resumed_from_, folder) : resume.mode == ResumeOptions::Mode::kAuto;
  if (holds_run && !goes_on) {
    throw base::UsageError(cat(folder.string(),
                               " already holds a run; go on with it (--resume auto), or choose "
                               "another folder (--set run.dir=...)"));
  }
  if (resumed_from_) {
    resume_from(*resumed_from_, resume.allow_change);
  } else {
    info_.run_id = base::unique_suffix();
    load_weights();
  }
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
  if (is_in(path, config_.run.dir)) {
    saved_step_ = info_.step;
  } else {  // a new run that begins with the state of another
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
  changes += rate_change(before.config, config_, saved.step + 1);
  if (!allow_change) {
    throw base::UsageError(
        cat("resume: settings that change the result differ from the checkpoint's: ",
            changes,
            "; set them back, or go on all the same with --allow-change"));
  }
  base::log_warning(cat("resumed with other settings: ", changes));
}

// From here on the run folder tells of this run: checkpoints and log lines of a branch that is left
// are set aside.
void Trainer::open_log() {
  const fs::path folder = config_.run.dir;
  if (resumed_from_) store_.adopt(*resumed_from_);
  log_ = std::make_unique<MetricsLog>(folder / "log.jsonl",
                                      resumed_from_ ? std::optional(info_.step) : std::nullopt);
  base::write_file_atomic(folder / "config.json", info_.config_json + "\n");
}

void Trainer::write_header() {
  nlohmann::ordered_json header{
      {"version", parts_.version},
      {"config_hash", config::config_hash(config_)},
      {"data_hash", info_.data_hash},
      {"vocabulary_hash", info_.vocabulary_hash},
      {"start", base::utc_time_text()},
      {"device", parts_.device.name()},
      {"parameters", model_.table().parameter_count()},
      {"flops_per_token", model::training_flops_per_token(parts_.model, config_.data.seq_len)},
      {"train", counts_json(parts_.dataset.train->counts())},
      {"validation", counts_json(parts_.dataset.validation->counts())}};
  if (!parts_.dataset.skipped.empty()) {
    for (const auto& [reason, entry] : parts_.dataset.skipped)
      header["skipped_documents"][reason] = entry.count;
  }
  if (resumed_from_) header["resumed_at"] = info_.step;
  log_->header(header);
}

}  // namespace g2::train
