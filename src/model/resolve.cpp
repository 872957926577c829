#include "model/resolve.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "model/hf_config.h"

namespace g2::model {
namespace {

using base::cat;
using config::ModelSettings;

[[noreturn]] void fail(const std::string& key, const std::string& message) {
  throw base::UsageError(cat("model.", key, ": ", message));
}

struct SizeRow {
  const char* key;
  std::optional<std::int64_t> ModelSettings::*given;
  std::int64_t Gemma2Config::*value;
};
constexpr SizeRow kSizes[] = {
    {"vocab_size", &ModelSettings::vocab_size, &Gemma2Config::vocab_size},
    {"hidden_size", &ModelSettings::hidden_size, &Gemma2Config::hidden_size},
    {"intermediate_size", &ModelSettings::intermediate_size, &Gemma2Config::intermediate_size},
    {"num_hidden_layers", &ModelSettings::num_hidden_layers, &Gemma2Config::num_hidden_layers},
    {"num_attention_heads",
     &ModelSettings::num_attention_heads,
     &Gemma2Config::num_attention_heads},
    {"num_key_value_heads",
     &ModelSettings::num_key_value_heads,
     &Gemma2Config::num_key_value_heads},
    {"head_dim", &ModelSettings::head_dim, &Gemma2Config::head_dim},
};

// A given null becomes `none`.
template <typename T>
void take(const config::Nullable<T>& given, T none, T& value) {
  if (given) value = given->value_or(none);
}
template <typename T>
void take(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

Gemma2Config starting_point(const ModelSettings& s, std::vector<std::string>& warnings) {
  // With both, the preset says what the folder must hold, and describes it where it is not there.
  if (s.path && (!s.preset || std::filesystem::exists(*s.path))) {
    ParsedConfig parsed = read_hf_config(*s.path);
    warnings.insert(warnings.end(), parsed.warnings.begin(), parsed.warnings.end());
    if (s.preset) {
      for (const SizeRow& row : kSizes) {
        const std::int64_t wanted = preset(*s.preset).*row.value;
        if (parsed.config.*row.value != wanted) {
          fail("path",
               cat(*s.path,
                   " has ",
                   row.key,
                   " ",
                   parsed.config.*row.value,
                   ", model.preset ",
                   *s.preset,
                   " has ",
                   wanted));
        }
      }
    }
    return parsed.config;
  }
  if (s.preset) return preset(*s.preset);
  for (const SizeRow& row : kSizes) {
    if (!(s.*row.given)) {
      fail(row.key, "is needed; or name a model.preset, or a Hugging Face folder in model.path");
    }
  }
  Gemma2Config c;
  c.query_pre_attn_scalar = static_cast<double>(*s.head_dim);
  return c;
}

void take_layer_types(const std::vector<std::string>& types, Gemma2Config& c) {
  c.sliding_layers.clear();
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      fail("layer_types",
           cat("holds '", type, "', expected 'sliding_attention' or 'full_attention'"));
    }
    c.sliding_layers.push_back(type == "sliding_attention");
  }
}

}  // namespace

Gemma2Config resolve_model(const ModelSettings& s, std::vector<std::string>& warnings) {
  Gemma2Config c = starting_point(s, warnings);
  for (const SizeRow& row : kSizes) take(s.*row.given, c.*row.value);
  take(s.query_pre_attn_scalar, c.query_pre_attn_scalar);
  take(s.rms_norm_eps, c.rms_norm_eps);
  take(s.rope_theta, c.rope_theta);
  take(s.max_position_embeddings, c.max_position_embeddings);
  take(s.sliding_window, std::int64_t{0}, c.sliding_window);
  take(s.attn_logit_softcapping, 0.0, c.attn_logit_softcapping);
  take(s.final_logit_softcapping, 0.0, c.final_logit_softcapping);
  take(s.tie_word_embeddings, c.tie_word_embeddings);
  take(s.initializer_range, c.initializer_range);
  take(s.pad_token_id, std::int64_t{-1}, c.pad_token_id);
  take(s.bos_token_id, std::int64_t{-1}, c.bos_token_id);
  take(s.eos_token_id, c.eos_token_ids);
  if (s.hidden_activation && *s.hidden_activation != "gelu_pytorch_tanh") {
    fail("hidden_activation",
         cat("is '", *s.hidden_activation, "', only 'gelu_pytorch_tanh' is supported"));
  }
  if (s.layer_types) take_layer_types(*s.layer_types, c);
  if (const auto problem = first_problem(c)) fail(problem->key, problem->message);
  return c;
}

}  // namespace g2::model
