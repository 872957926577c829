// The numbers that define a Gemma 2: sizes, caps, window, special ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace g2::model {

// Field names are Hugging Face's. The defaults are the class defaults of transformers, which are
// those of the 2B model: a key missing in a config.json means the same here and there.
struct Gemma2Config {
  std::int64_t vocab_size = 256000;
  std::int64_t hidden_size = 2304;
  std::int64_t intermediate_size = 9216;
  std::int64_t num_hidden_layers = 26;
  std::int64_t num_attention_heads = 8;
  std::int64_t num_key_value_heads = 4;
  std::int64_t head_dim = 256;
  double query_pre_attn_scalar = 256;  // scores are scaled by its -0.5th power
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double initializer_range = 0.02;
  std::int64_t max_position_embeddings = 8192;
  std::int64_t sliding_window = 4096;   // visible keys of a sliding layer; 0: no layer slides
  double attn_logit_softcapping = 50;   // 0: off
  double final_logit_softcapping = 30;  // 0: off
  bool tie_word_embeddings = true;
  std::int64_t pad_token_id = 0;  // -1: none
  std::int64_t bos_token_id = 2;  // -1: none
  std::vector<std::int64_t> eos_token_ids = {1};
  std::vector<bool> sliding_layers;  // one flag a layer; empty: the even layers slide

  bool is_sliding(std::int64_t layer) const {
    if (sliding_window == 0) return false;
    return sliding_layers.empty() ? layer % 2 == 0
                                  : sliding_layers[static_cast<std::size_t>(layer)];
  }

  bool operator==(const Gemma2Config&) const = default;
};

// "gemma2_2b", "gemma2_9b", "gemma2_27b".
const std::vector<std::string>& preset_names();

// Throws UsageError naming the nearest preset.
Gemma2Config preset(std::string_view name);

// A key and what is wrong with it: "num_attention_heads", "is 3, must be a multiple of ...".
struct ConfigProblem {
  std::string key;
  std::string message;
};

// The first value no Gemma 2 can have. Every function that takes a Gemma2Config requires that there
// is none.
std::optional<ConfigProblem> first_problem(const Gemma2Config& config);

// Elements of all parameter tensors; a tied head counts once.
std::int64_t parameter_count(const Gemma2Config& config);

// Elements of the embedding table (and of the head, when untied).
std::int64_t embedding_parameter_count(const Gemma2Config& config);

// "2.61 B parameters: 26 layers, hidden 2304, 8 heads (4 kv) of 256, ffn 9216, vocabulary 256000".
std::string describe(const Gemma2Config& config);

// Floating-point operations of the training step for each token of a row of `seq_len` tokens,
// forward and backward without recomputation: 6 an element of a multiplied weight, and attention
// over the visible pairs only. Norms, RoPE and softmax are not counted.
double training_flops_per_token(const Gemma2Config& config, std::int64_t seq_len);

// Query-key pairs that attention looks at, in a layer of each kind.
struct VisiblePairs {
  std::int64_t full = 0;
  std::int64_t sliding = 0;
};

// The same count for rows of any layout, of `tokens` tokens with these pairs in all.
double training_flops(const Gemma2Config& config, std::int64_t tokens, const VisiblePairs& pairs);

}  // namespace g2::model
