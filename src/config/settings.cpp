// The settings table: one row a setting. Parsing, --set, range checks, defaults in the
// documentation, JSON Schema, help and docs/config.md all come from here.
#include <algorithm>

#include "config/codec.h"
#include "config/setting.h"

namespace g2::config {

template <>
struct Names<Packing> {
  static constexpr std::array<std::string_view, 2> kNames = {"stream", "documents"};
};
template <>
struct Names<Precision> {
  static constexpr std::array<std::string_view, 3> kNames = {"fp32", "bf16", "fp64"};
};
template <>
struct Names<Recompute> {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "norms", "layer"};
};
template <>
struct Names<OnNonfinite> {
  static constexpr std::array<std::string_view, 2> kNames = {"stop", "skip"};
};
template <>
struct Names<ScheduleKind> {
  static constexpr std::array<std::string_view, 4> kNames = {"constant", "linear", "cosine", "wsd"};
};
template <>
struct Names<base::LogLevel> {
  static constexpr std::array<std::string_view, 5> kNames = {
      "debug", "info", "warning", "error", "off"};
};
template <>
struct Names<Progress> {
  static constexpr std::array<std::string_view, 3> kNames = {"auto", "on", "off"};
};
template <>
struct Names<DeviceKind> {
  static constexpr std::array<std::string_view, 3> kNames = {"auto", "cpu", "cuda"};
};

namespace {

constexpr std::array<std::string_view, 3> kPresets = {"gemma2_2b", "gemma2_9b", "gemma2_27b"};
constexpr std::array<std::string_view, 1> kActivations = {"gelu_pytorch_tanh"};
constexpr std::array<std::string_view, 2> kLayerTypes = {"sliding_attention", "full_attention"};

constexpr Range kAny = {};
constexpr Range kPositive = {.low = 0, .low_excluded = true};
constexpr Range kNotNegative = {.low = 0};
constexpr Range kSize = {.low = 1, .high = 2147483647};
constexpr Range kId = {.low = 0, .high = 2147483646};
constexpr Range kMomentDecay = {.low = 0, .high = 1, .high_excluded = true};
constexpr Range kShare = {.low = 0, .high = 1};
constexpr Range kFraction = {.low = 0, .high = 1, .low_excluded = true, .high_excluded = true};

template <typename S>
constexpr S RunConfig::*kSectionOf = nullptr;
template <>
constexpr auto kSectionOf<RunSettings> = &RunConfig::run;
template <>
constexpr auto kSectionOf<ModelSettings> = &RunConfig::model;
template <>
constexpr auto kSectionOf<DataSettings> = &RunConfig::data;
template <>
constexpr auto kSectionOf<TrainSettings> = &RunConfig::train;
template <>
constexpr auto kSectionOf<OptimizerSettings> = &RunConfig::optimizer;
template <>
constexpr auto kSectionOf<ScheduleSettings> = &RunConfig::schedule;
template <>
constexpr auto kSectionOf<CheckpointSettings> = &RunConfig::checkpoint;
template <>
constexpr auto kSectionOf<LogSettings> = &RunConfig::log;
template <>
constexpr auto kSectionOf<DeviceSettings> = &RunConfig::device;
template <>
constexpr auto kSectionOf<DistSettings> = &RunConfig::dist;

template <auto kMember>
struct Access;

template <typename S, typename T, T S::*kMember>
struct Access<kMember> {
  using Value = T;
  static void read(const JsonValue& value, RunConfig& config) {
    config.*kSectionOf<S>.*kMember = Codec<T>::read(value);
  }
  static std::optional<std::string> write(const RunConfig& config) {
    return Codec<T>::write(config.*kSectionOf<S>.*kMember);
  }
};

// `if_absent` is for settings that may have no value: what holds then.
template <auto kMember>
constexpr Setting row(std::string_view path,
                      Range range,
                      std::string_view help,
                      std::string_view if_absent = "",
                      std::span<const std::string_view> choices = {}) {
  using Value = typename Access<kMember>::Value;
  if constexpr (std::is_enum_v<Value>) choices = Names<Value>::kNames;
  return {path,
          Codec<Value>::kType,
          range,
          choices,
          if_absent,
          help,
          &Access<kMember>::read,
          &Access<kMember>::write};
}

constexpr Section kSections[] = {
    {"run", "The run as a whole."},
    {"model",
     "Give `preset` or `path`, and only what differs from it; or, with neither, all seven sizes. "
     "Names and meanings are those of a Hugging Face config.json."},
    {"data",
     "What to learn from. Paths are relative to the working directory; `*`, `?` and `[a-z]` are "
     "globs, a folder stands for the files in it."},
    {"train", "Steps, batches and arithmetic."},
    {"optimizer", "AdamW with decoupled weight decay, and clipping by the global gradient norm."},
    {"schedule",
     "The learning rate over the steps: warm-up, then the kind's curve down to `min_lr_ratio`."},
    {"checkpoint",
     "What is kept in run.dir/checkpoints. The last step is always saved, and so is the step at "
     "which a signal stops the run."},
    {"log",
     "What is shown on the console. run.dir/log.jsonl holds every step whatever is chosen here."},
    {"device", "Where to compute."},
    {"dist", "Training on several ranks."},
};

// clang-format off
constexpr Setting kSettings[] = {
    row<&RunSettings::dir>("run.dir", kAny, "Run folder: effective config, log and checkpoints."),
    row<&RunSettings::seed>("run.seed", kNotNegative, "Seed of initialisation and shuffling."),

    row<&ModelSettings::preset>("model.preset", kAny, "A published Gemma 2.", "none", kPresets),
    row<&ModelSettings::path>("model.path", kAny, "Hugging Face folder to start from: config.json and weights. With a preset too, its sizes must be the preset's.", "weights start random"),
    row<&ModelSettings::vocab_size>("model.vocab_size", kSize, "Rows of the embedding; at least the tokenizer's pieces.", "as preset or path"),
    row<&ModelSettings::hidden_size>("model.hidden_size", kSize, "Width of the residual stream; a multiple of num_attention_heads.", "as preset or path"),
    row<&ModelSettings::intermediate_size>("model.intermediate_size", kSize, "Width of the MLP.", "as preset or path"),
    row<&ModelSettings::num_hidden_layers>("model.num_hidden_layers", kSize, "Layers.", "as preset or path"),
    row<&ModelSettings::num_attention_heads>("model.num_attention_heads", kSize, "Query heads; a multiple of num_key_value_heads.", "as preset or path"),
    row<&ModelSettings::num_key_value_heads>("model.num_key_value_heads", kSize, "Key and value heads.", "as preset or path"),
    row<&ModelSettings::head_dim>("model.head_dim", kSize, "Width of a head; even. Not derived from hidden_size.", "as preset or path"),
    row<&ModelSettings::query_pre_attn_scalar>("model.query_pre_attn_scalar", kPositive, "Attention scores are scaled by its -0.5th power.", "as preset or path, else head_dim"),
    row<&ModelSettings::rms_norm_eps>("model.rms_norm_eps", kPositive, "Added to the mean square inside RMSNorm.", "as preset or path, else 1e-6"),
    row<&ModelSettings::rope_theta>("model.rope_theta", kPositive, "Base of the rotary angles.", "as preset or path, else 10000"),
    row<&ModelSettings::max_position_embeddings>("model.max_position_embeddings", kSize, "Longest row the model is meant for, tokens.", "as preset or path, else 8192"),
    row<&ModelSettings::sliding_window>("model.sliding_window", kSize, "Keys a token sees in a sliding layer, its own included; null: no layer slides.", "as preset or path, else 4096"),
    row<&ModelSettings::attn_logit_softcapping>("model.attn_logit_softcapping", kPositive, "Cap of the attention scores; null: off.", "as preset or path, else 50"),
    row<&ModelSettings::final_logit_softcapping>("model.final_logit_softcapping", kPositive, "Cap of the logits; null: off.", "as preset or path, else 30"),
    row<&ModelSettings::hidden_activation>("model.hidden_activation", kAny, "Gate of the MLP.", "gelu_pytorch_tanh", kActivations),
    row<&ModelSettings::tie_word_embeddings>("model.tie_word_embeddings", kAny, "Whether the head is the embedding.", "as preset or path, else true"),
    row<&ModelSettings::initializer_range>("model.initializer_range", kNotNegative, "Standard deviation of random initial weights.", "as preset or path, else 0.02"),
    row<&ModelSettings::pad_token_id>("model.pad_token_id", kId, "Padding id; null: none.", "as preset or path, else 0"),
    row<&ModelSettings::bos_token_id>("model.bos_token_id", kId, "Id that opens a document; null: none.", "as preset or path, else 2"),
    row<&ModelSettings::eos_token_id>("model.eos_token_id", kId, "Id that ends a document, or several.", "as preset or path, else 1"),
    row<&ModelSettings::layer_types>("model.layer_types", kAny, "Kind of each layer, num_hidden_layers of them.", "as path, else sliding and full in turn", kLayerTypes),

    row<&DataSettings::train>("data.train", kAny, "Training data: .txt, .jsonl and token files, folders, globs.", "needed for training"),
    row<&DataSettings::validation>("data.validation", kFraction, "Share of the documents held out for validation, or the validation data."),
    row<&DataSettings::seq_len>("data.seq_len", {.low = 2, .high = 1048576}, "Row length, tokens."),
    row<&DataSettings::tokenizer>("data.tokenizer", kAny, "\"byte\", a SentencePiece .model, or a folder with tokenizer.model."),
    row<&DataSettings::packing>("data.packing", kAny, "stream: rows are cut from the documents end on end, and attention crosses them. documents: whole documents are packed into rows, and attention and positions stay inside each."),
    row<&DataSettings::text_key>("data.text_key", kAny, "Key of the text in a JSON Lines object."),
    row<&DataSettings::shuffle>("data.shuffle", kAny, "Whether each epoch has an order of its own, fixed by run.seed."),
    row<&DataSettings::skip_bad>("data.skip_bad", kAny, "Whether documents that cannot be read are skipped and counted; otherwise the first one stops the run."),

    row<&TrainSettings::max_steps>("train.max_steps", {.low = 1}, "Optimizer steps."),
    row<&TrainSettings::global_batch>("train.global_batch", kSize, "Rows an optimizer step."),
    row<&TrainSettings::micro_batch>("train.micro_batch", kSize, "Rows computed at a time; divides global_batch. Changes memory and speed, not the result beyond rounding.", "train.global_batch"),
    row<&TrainSettings::precision>("train.precision", kAny, "Arithmetic of the model. Master weights and moments are fp32 under bf16, fp64 under fp64 (CPU only)."),
    row<&TrainSettings::eval_every>("train.eval_every", kNotNegative, "Steps between evaluations; 0: after the last step only."),
    row<&TrainSettings::eval_sequences>("train.eval_sequences", kNotNegative, "Validation rows an evaluation; 0: all."),
    row<&TrainSettings::recompute>("train.recompute", kAny, "What the backward pass computes again instead of keeping it: nothing, norms and activations, or whole layers."),
    row<&TrainSettings::lm_head_buffer_mib>("train.lm_head_buffer_mib", {.low = 1, .high = 1048576}, "Room for logits, MiB; the loss is computed in chunks of tokens that fit."),
    row<&TrainSettings::z_loss>("train.z_loss", {.low = 0, .high = 0.005, .high_excluded = true}, "Weight of the squared log of the softmax denominator; 0: off. Not part of the reported loss."),
    row<&TrainSettings::on_nonfinite>("train.on_nonfinite", kAny, "A loss or gradient that is not finite stops the run, or the step is skipped and counted."),

    row<&OptimizerSettings::learning_rate>("optimizer.learning_rate", kPositive, "Peak rate, reached at the end of the warm-up."),
    row<&OptimizerSettings::beta1>("optimizer.beta1", kMomentDecay, "Decay of the first moment, a step."),
    row<&OptimizerSettings::beta2>("optimizer.beta2", kMomentDecay, "Decay of the second moment, a step."),
    row<&OptimizerSettings::eps>("optimizer.eps", kPositive, "Added to the root of the second moment."),
    row<&OptimizerSettings::weight_decay>("optimizer.weight_decay", kNotNegative, "Decoupled decay, times the rate; norms never decay."),
    row<&OptimizerSettings::grad_clip>("optimizer.grad_clip", kNotNegative, "Largest global norm of the gradient; 0: no clipping."),
    row<&OptimizerSettings::decay_embedding>("optimizer.decay_embedding", kAny, "Whether the embedding decays too."),

    row<&ScheduleSettings::kind>("schedule.kind", kAny, "Curve after the warm-up. wsd: constant, then linear over decay_steps."),
    row<&ScheduleSettings::warmup_steps>("schedule.warmup_steps", kNotNegative, "Steps of linear rise to the peak."),
    row<&ScheduleSettings::total_steps>("schedule.total_steps", {.low = 1}, "Step at which the curve has reached its end, warm-up included.", "train.max_steps"),
    row<&ScheduleSettings::min_lr_ratio>("schedule.min_lr_ratio", kShare, "Rate at the end, as a share of the peak."),
    row<&ScheduleSettings::decay_steps>("schedule.decay_steps", {.low = 1}, "Steps of the final fall; kind wsd only.", "a tenth of total_steps"),
    row<&ScheduleSettings::zero_first_step>("schedule.zero_first_step", kAny, "Whether the warm-up starts at rate 0, as in transformers; otherwise the first step learns."),

    row<&CheckpointSettings::every>("checkpoint.every", kNotNegative, "Steps between checkpoints; 0: none before the last step."),
    row<&CheckpointSettings::keep_last>("checkpoint.keep_last", kSize, "Newest checkpoints kept."),
    row<&CheckpointSettings::keep_every>("checkpoint.keep_every", kNotNegative, "Checkpoints at multiples of this step are kept for good; 0: none."),
    row<&CheckpointSettings::keep_best>("checkpoint.keep_best", kAny, "Whether the checkpoint with the lowest validation loss is kept."),

    row<&LogSettings::level>("log.level", kAny, "Least important console line shown."),
    row<&LogSettings::every>("log.every", {.low = 1}, "Steps between console lines."),
    row<&LogSettings::progress>("log.progress", kAny, "Progress bar; auto: when stderr is a terminal."),

    row<&DeviceSettings::kind>("device.kind", kAny, "auto: the GPU where there is one, else the CPU."),
    row<&DeviceSettings::index>("device.index", {.low = 0, .high = 1023}, "Which GPU."),
    row<&DeviceSettings::threads>("device.threads", {.low = 0, .high = 4096}, "CPU threads; 0: one a usable processor. Changes speed, not results."),

    row<&DistSettings::ranks>("dist.ranks", {.low = 1, .high = 1}, "Processes that train together; this version runs one."),
};
// clang-format on

}  // namespace

std::span<const Setting> settings() {
  return kSettings;
}

std::span<const Section> sections() {
  return kSections;
}

const Setting* find_setting(std::string_view path) {
  const auto* found = std::ranges::find(kSettings, path, &Setting::path);
  return found == std::end(kSettings) ? nullptr : found;
}

}  // namespace g2::config
