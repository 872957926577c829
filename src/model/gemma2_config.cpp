#include "model/gemma2_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace g2::model {
namespace {

using base::cat;

constexpr double kMaxParameters = 1e15;  // keeps every size and byte count far from overflow

struct Size {
  const char* key;
  std::int64_t Gemma2Config::*member;
};
constexpr Size kSizes[] = {
    {"vocab_size", &Gemma2Config::vocab_size},
    {"hidden_size", &Gemma2Config::hidden_size},
    {"intermediate_size", &Gemma2Config::intermediate_size},
    {"num_hidden_layers", &Gemma2Config::num_hidden_layers},
    {"num_attention_heads", &Gemma2Config::num_attention_heads},
    {"num_key_value_heads", &Gemma2Config::num_key_value_heads},
    {"head_dim", &Gemma2Config::head_dim},
    {"max_position_embeddings", &Gemma2Config::max_position_embeddings},
};

struct Real {
  const char* key;
  double Gemma2Config::*member;
  bool zero_allowed;
};
constexpr Real kReals[] = {
    {"query_pre_attn_scalar", &Gemma2Config::query_pre_attn_scalar, false},
    {"rms_norm_eps", &Gemma2Config::rms_norm_eps, false},
    {"rope_theta", &Gemma2Config::rope_theta, false},
    {"initializer_range", &Gemma2Config::initializer_range, true},
    {"attn_logit_softcapping", &Gemma2Config::attn_logit_softcapping, true},
    {"final_logit_softcapping", &Gemma2Config::final_logit_softcapping, true},
};

// Weights one layer multiplies a token with.
double layer_weights(const Gemma2Config& c) {
  const double d = static_cast<double>(c.hidden_size);
  const double heads = static_cast<double>(c.num_attention_heads + c.num_key_value_heads);
  return 2 * d * heads * static_cast<double>(c.head_dim) +
         3 * d * static_cast<double>(c.intermediate_size);
}

std::optional<ConfigProblem> size_problem(const Gemma2Config& c) {
  for (const Size& size : kSizes) {
    const std::int64_t value = c.*size.member;
    if (value < 1 || value > std::numeric_limits<std::int32_t>::max()) {
      return ConfigProblem{size.key, cat("is ", value, ", must be between 1 and 2147483647")};
    }
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return ConfigProblem{"num_attention_heads",
                         cat("is ",
                             c.num_attention_heads,
                             ", must be a multiple of num_key_value_heads ",
                             c.num_key_value_heads)};
  }
  if (c.hidden_size % c.num_attention_heads != 0) {  // not needed here, but transformers refuses it
    return ConfigProblem{"hidden_size",
                         cat("is ",
                             c.hidden_size,
                             ", must be a multiple of num_attention_heads ",
                             c.num_attention_heads)};
  }
  if (c.head_dim % 2 != 0) {
    return ConfigProblem{"head_dim", cat("is ", c.head_dim, ", must be even (RoPE turns pairs)")};
  }
  const double parameters = static_cast<double>(c.num_hidden_layers) * layer_weights(c) +
                            static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  if (parameters > kMaxParameters) {
    return ConfigProblem{"num_hidden_layers", "and the other sizes give over 1e15 parameters"};
  }
  return std::nullopt;
}

std::optional<ConfigProblem> id_problem(const char* key, std::int64_t id, const Gemma2Config& c) {
  if (id >= 0 && id < c.vocab_size) return std::nullopt;
  return ConfigProblem{key, cat("is ", id, ", must be below vocab_size ", c.vocab_size)};
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"gemma2_2b", "gemma2_9b", "gemma2_27b"};
  return names;
}

Gemma2Config preset(std::string_view name) {
  Gemma2Config c;
  if (name == "gemma2_2b") return c;
  if (name == "gemma2_9b") {
    c.hidden_size = 3584;
    c.intermediate_size = 14336;
    c.num_hidden_layers = 42;
    c.num_attention_heads = 16;
    c.num_key_value_heads = 8;
    return c;
  }
  if (name == "gemma2_27b") {
    c.hidden_size = 4608;
    c.intermediate_size = 36864;
    c.num_hidden_layers = 46;
    c.num_attention_heads = 32;
    c.num_key_value_heads = 16;
    c.head_dim = 128;
    c.query_pre_attn_scalar = 144;  // hidden_size / heads, not head_dim
    return c;
  }
  throw base::UsageError(cat("no model preset '",
                             name,
                             "', expected gemma2_2b, gemma2_9b or gemma2_27b",
                             base::did_you_mean(name, preset_names())));
}

std::optional<ConfigProblem> first_problem(const Gemma2Config& c) {
  if (auto problem = size_problem(c)) return problem;
  for (const Real& real : kReals) {
    const double value = c.*real.member;
    if (!std::isfinite(value) || value < 0 || (value == 0 && !real.zero_allowed)) {
      return ConfigProblem{
          real.key,
          cat("is ",
              base::number_text(value),
              real.zero_allowed ? ", must not be negative" : ", must be positive")};
    }
  }
  if (c.sliding_window < 0) {
    return ConfigProblem{"sliding_window", cat("is ", c.sliding_window, ", must be positive")};
  }
  if (!c.sliding_layers.empty() &&
      static_cast<std::int64_t>(c.sliding_layers.size()) != c.num_hidden_layers) {
    return ConfigProblem{"layer_types",
                         cat("has ",
                             c.sliding_layers.size(),
                             " entries, must have num_hidden_layers ",
                             c.num_hidden_layers)};
  }
  for (const auto& [key, id] :
       {std::pair{"pad_token_id", c.pad_token_id}, std::pair{"bos_token_id", c.bos_token_id}}) {
    if (id == -1) continue;
    if (auto problem = id_problem(key, id, c)) return problem;
  }
  for (const std::int64_t id : c.eos_token_ids) {
    if (auto problem = id_problem("eos_token_id", id, c)) return problem;
  }
  return std::nullopt;
}

std::int64_t embedding_parameter_count(const Gemma2Config& c) {
  return (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * c.hidden_size;
}

std::int64_t parameter_count(const Gemma2Config& c) {
  const std::int64_t d = c.hidden_size;
  const std::int64_t attention =
      2 * d * (c.num_attention_heads + c.num_key_value_heads) * c.head_dim;
  const std::int64_t layer = attention + 3 * d * c.intermediate_size + 4 * d;
  return embedding_parameter_count(c) + c.num_hidden_layers * layer + d;
}

std::string describe(const Gemma2Config& c) {
  return cat(base::count_text(static_cast<double>(parameter_count(c))),
             " parameters: ",
             c.num_hidden_layers,
             " layers, hidden ",
             c.hidden_size,
             ", ",
             c.num_attention_heads,
             " heads (",
             c.num_key_value_heads,
             " kv) of ",
             c.head_dim,
             ", ffn ",
             c.intermediate_size,
             ", vocabulary ",
             c.vocab_size,
             c.tie_word_embeddings ? "" : ", untied head");
}

double training_flops(const Gemma2Config& c, std::int64_t tokens, const VisiblePairs& pairs) {
  double visible = 0;  // summed over the layers
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    visible += static_cast<double>(c.is_sliding(layer) ? pairs.sliding : pairs.full);
  }
  const double head = static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  const double weights = static_cast<double>(c.num_hidden_layers) * layer_weights(c) + head;
  const double head_width = static_cast<double>(c.num_attention_heads * c.head_dim);
  return 6 * weights * static_cast<double>(tokens) + 12 * head_width * visible;
}

double training_flops_per_token(const Gemma2Config& c, std::int64_t seq_len) {
  const std::int64_t t = seq_len;
  const std::int64_t w = std::min(c.sliding_window, t);
  const VisiblePairs row{.full = t * (t + 1) / 2, .sliding = w * (w + 1) / 2 + (t - w) * w};
  return training_flops(c, t, row) / static_cast<double>(t);
}

}  // namespace g2::model
