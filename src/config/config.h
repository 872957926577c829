// Everything one run is told, as plain structs: one a section of the JSON file, same names.
//
// A default stands here and nowhere else; range, choices and help of each setting are its row in
// settings.cpp. load.h fills the structs from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"

namespace g2::config {

// A value that may also be null: no outer value means "not given", no inner value means null.
template <typename T>
using Nullable = std::optional<std::optional<T>>;

struct RunSettings {
  std::string dir = "runs/default";
  std::int64_t seed = 1;
};

// Where the model comes from: a preset or a Hugging Face folder, and values that replace theirs;
// or, with neither, all sizes. A value not given is the one of preset or folder. A preset beside a
// folder says what the folder must hold.
struct ModelSettings {
  std::optional<std::string> preset;
  std::optional<std::string> path;  // Hugging Face folder: config.json and weights
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> intermediate_size;
  std::optional<std::int64_t> num_hidden_layers;
  std::optional<std::int64_t> num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;
  std::optional<std::int64_t> head_dim;
  std::optional<double> query_pre_attn_scalar;
  std::optional<double> rms_norm_eps;
  std::optional<double> rope_theta;
  std::optional<std::int64_t> max_position_embeddings;
  Nullable<std::int64_t> sliding_window;     // null: no layer slides
  Nullable<double> attn_logit_softcapping;   // null: off
  Nullable<double> final_logit_softcapping;  // null: off
  std::optional<std::string> hidden_activation;
  std::optional<bool> tie_word_embeddings;
  std::optional<double> initializer_range;
  Nullable<std::int64_t> pad_token_id;  // null: none
  Nullable<std::int64_t> bos_token_id;  // null: none
  std::optional<std::vector<std::int64_t>> eos_token_id;
  std::optional<std::vector<std::string>> layer_types;  // "sliding_attention", "full_attention"
};

enum class Packing { kStream, kDocuments };

// The share of the documents held out, or the files that hold the validation documents.
using Validation = std::variant<double, std::vector<std::string>>;

struct DataSettings {
  std::vector<std::string> train;  // paths and globs, relative to the working directory
  Validation validation = 0.05;
  std::int64_t seq_len = 256;
  std::string tokenizer = "byte";  // or a SentencePiece model, or a folder with tokenizer.model
  Packing packing = Packing::kStream;
  std::string text_key = "text";
  bool shuffle = true;
  bool skip_bad = false;
};

enum class Precision { kFp32, kBf16, kFp64 };
enum class Recompute { kNone, kNorms, kLayer };
enum class OnNonfinite { kStop, kSkip };

struct TrainSettings {
  std::int64_t max_steps = 1000;
  std::int64_t global_batch = 8;            // sequences an optimizer step
  std::optional<std::int64_t> micro_batch;  // sequences at a time; load.h fills in global_batch
  Precision precision = Precision::kFp32;
  std::int64_t eval_every = 100;    // steps; 0: after the last step only
  std::int64_t eval_sequences = 0;  // 0: all
  Recompute recompute = Recompute::kNone;
  std::int64_t lm_head_buffer_mib = 64;
  double z_loss = 0;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
};

struct OptimizerSettings {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;  // global norm; 0: off
  bool decay_embedding = false;
};

enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd };

struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::kCosine;
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> total_steps;  // load.h fills in train.max_steps
  double min_lr_ratio = 0.1;
  std::optional<std::int64_t> decay_steps;  // wsd; load.h fills in a tenth of total_steps
  bool zero_first_step = false;
};

struct CheckpointSettings {
  std::int64_t every = 500;  // steps; 0: after the last step and on a signal only
  std::int64_t keep_last = 2;
  std::int64_t keep_every = 0;  // steps; 0: none beyond keep_last
  bool keep_best = true;
};

enum class Progress { kAuto, kOn, kOff };

struct LogSettings {
  base::LogLevel level = base::LogLevel::kInfo;
  std::int64_t every = 1;  // steps between console lines; log.jsonl holds every step
  Progress progress = Progress::kAuto;
};

enum class DeviceKind { kAuto, kCpu, kCuda };

struct DeviceSettings {
  DeviceKind kind = DeviceKind::kAuto;
  std::int64_t index = 0;
  std::int64_t threads = 0;  // 0: one a usable processor
};

struct DistSettings {
  std::int64_t ranks = 1;
};

struct RunConfig {
  RunSettings run;
  ModelSettings model;
  DataSettings data;
  TrainSettings train;
  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  CheckpointSettings checkpoint;
  LogSettings log;
  DeviceSettings device;
  DistSettings dist;
};

}  // namespace g2::config
