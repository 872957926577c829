#include "config/checks.h"

#include <string_view>

#include "base/text.h"
#include "config/setting.h"

namespace g2::config {
namespace {

using base::cat;
using Found = std::optional<Conflict>;

// What must be known of a model that has neither preset nor folder, and cannot differ from the
// folder's, whose weights have these shapes.
constexpr std::string_view kSizes[] = {"model.vocab_size",
                                       "model.hidden_size",
                                       "model.intermediate_size",
                                       "model.num_hidden_layers",
                                       "model.num_attention_heads",
                                       "model.num_key_value_heads",
                                       "model.head_dim"};

bool is_given(const RunConfig& config, std::string_view path) {
  return find_setting(path)->write(config).has_value();
}

// "PATH is VALUE, RULE": with the value as the effective config shows it.
Conflict conflict(const RunConfig& config,
                  std::string_view path,
                  std::string_view other,
                  const std::string& rule) {
  return {std::string(path),
          std::string(other),
          cat(path, " is ", find_setting(path)->write(config).value_or("null"), ", ", rule)};
}

std::string named(const RunConfig& config, std::string_view path) {
  return cat(path, " (", find_setting(path)->write(config).value_or("null"), ")");
}

Found model_conflict(const RunConfig& c) {
  if (!c.model.path) return std::nullopt;
  for (const std::string_view size : kSizes) {
    if (is_given(c, size)) {
      return conflict(c,
                      size,
                      "model.path",
                      "but the weights in " + named(c, "model.path") + " fix it: drop it");
    }
  }
  return std::nullopt;
}

Found batch_conflict(const RunConfig& c) {
  if (c.train.global_batch % *c.train.micro_batch != 0) {
    return conflict(c,
                    "train.global_batch",
                    "train.micro_batch",
                    "must be a multiple of " + named(c, "train.micro_batch"));
  }
  if (c.model.max_position_embeddings && c.data.seq_len > *c.model.max_position_embeddings) {
    return conflict(c,
                    "data.seq_len",
                    "model.max_position_embeddings",
                    "must be at most " + named(c, "model.max_position_embeddings"));
  }
  return std::nullopt;
}

Found schedule_conflict(const RunConfig& c) {
  const ScheduleSettings& s = c.schedule;
  if (s.warmup_steps >= *s.total_steps) {
    return conflict(c,
                    "schedule.warmup_steps",
                    "schedule.total_steps",
                    "must be below " + named(c, "schedule.total_steps"));
  }
  if (s.zero_first_step && s.warmup_steps == 0) {
    return conflict(
        c,
        "schedule.zero_first_step",
        "schedule.warmup_steps",
        "but " + named(c, "schedule.warmup_steps") + " is no warm-up to start at rate 0");
  }
  if (s.kind != ScheduleKind::kConstant && s.min_lr_ratio == 0 &&
      *s.total_steps < c.train.max_steps) {
    return conflict(c,
                    "schedule.total_steps",
                    "train.max_steps",
                    "below " + named(c, "train.max_steps") +
                        ": the steps between would train at rate 0, as schedule.min_lr_ratio is 0");
  }
  if (!s.decay_steps) return std::nullopt;
  if (s.kind != ScheduleKind::kWsd) {
    return conflict(c,
                    "schedule.decay_steps",
                    "schedule.kind",
                    "but has no effect under " + named(c, "schedule.kind") + ", only under wsd");
  }
  if (s.warmup_steps + *s.decay_steps > *s.total_steps) {
    return conflict(c,
                    "schedule.decay_steps",
                    "schedule.total_steps",
                    "must leave room for " + named(c, "schedule.warmup_steps") + " in " +
                        named(c, "schedule.total_steps"));
  }
  return std::nullopt;
}

Found checkpoint_conflict(const RunConfig& c) {
  const CheckpointSettings& s = c.checkpoint;
  if (s.keep_every == 0 || (s.every > 0 && s.keep_every % s.every == 0)) return std::nullopt;
  return conflict(
      c,
      "checkpoint.keep_every",
      "checkpoint.every",
      "must be a multiple of " + named(c, "checkpoint.every") + ": other steps are not saved");
}

Found device_conflict(const RunConfig& c) {
  if (c.device.kind == DeviceKind::kCuda && c.train.precision == Precision::kFp64) {
    return conflict(c,
                    "train.precision",
                    "device.kind",
                    "but " + named(c, "device.kind") + " computes in fp32 and bf16 only");
  }
  if (c.device.kind == DeviceKind::kCpu && c.device.index != 0) {
    return conflict(
        c, "device.index", "device.kind", "but has no effect under " + named(c, "device.kind"));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Conflict> first_conflict(const RunConfig& config) {
  for (const auto check :
       {model_conflict, batch_conflict, schedule_conflict, checkpoint_conflict, device_conflict}) {
    if (auto found = check(config)) return found;
  }
  return std::nullopt;
}

std::string missing_for_model(const RunConfig& config) {
  if (config.model.preset || config.model.path) return "";
  for (const std::string_view size : kSizes) {
    if (!is_given(config, size)) {
      return cat(size, " is not set; give model.preset, model.path, or all seven sizes of a model");
    }
  }
  return "";
}

std::string missing_for_training(const RunConfig& config) {
  if (config.data.train.empty()) {
    return "data.train is not set; name text, JSON Lines or token files to train on";
  }
  return missing_for_model(config);
}

}  // namespace g2::config
