#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace g2::model {
namespace {

using base::cat;
using nlohmann::json;

constexpr const char* kActivation = "gelu_pytorch_tanh";
constexpr std::int64_t kRelease9bScalar = 224;  // what the first 9B files said; Google trained 256

// Keys that have no effect on the mathematics here or in transformers.
constexpr const char* kIgnoredKeys[] = {
    "_name_or_path",
    "_attn_implementation",
    "architectures",
    "attn_implementation",
    "auto_map",
    "cache_implementation",
    "chunk_size_feed_forward",
    "dtype",
    "hidden_act",
    "id2label",
    "is_encoder_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
    "_attn_implementation_autoset",
    "problem_type",
    "finetuning_task",
};

class ConfigReader {
 public:
  ConfigReader(const json& root, const std::string& where) : root_(root), where_(where) {}

  ParsedConfig read() {
    identity();
    sizes();
    numbers();
    rope();
    window();
    ids();
    refused();
    unknown_keys();
    if (const auto problem = first_problem(config_)) fail(problem->key, problem->message);
    return {config_, warnings_};
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    throw base::DataError(cat(where_, ": ", key, " ", message));
  }
  void warn(const std::string& key, const std::string& message) {
    warnings_.push_back(cat(where_, ": ", key, " ", message));
  }

  // The value of a key, or null when it is missing; remembers that the key is known.
  const json* find(const std::string& key) {
    known_.push_back(key);
    const auto found = root_.find(key);
    return found == root_.end() ? nullptr : &*found;
  }

  std::int64_t to_integer(const std::string& key, const json& value) const {
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() &&
         value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())) {
      fail(key, cat("is ", value.dump(), ", must be an integer"));
    }
    return value.get<std::int64_t>();
  }
  double to_real(const std::string& key, const json& value) const {
    if (!value.is_number()) fail(key, cat("is ", value.dump(), ", must be a number"));
    return value.get<double>();
  }

  void integer(const std::string& key, std::int64_t& out) {
    if (const json* value = find(key)) out = to_integer(key, *value);
  }
  void real(const std::string& key, double& out) {
    if (const json* value = find(key)) out = to_real(key, *value);
  }
  void cap(const std::string& key, double& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    out = value->is_null() ? 0 : to_real(key, *value);
    if (!value->is_null() && out <= 0) {
      fail(key, cat("is ", value->dump(), ", must be positive; null turns it off"));
    }
  }
  std::int64_t id(const std::string& key, const json& value) const {
    const std::int64_t id = to_integer(key, value);
    if (id < 0) fail(key, cat("is ", id, ", must not be negative; null means none"));
    return id;
  }

  void identity() {
    const json* type = find("model_type");
    if (type == nullptr || *type != "gemma2") {
      fail("model_type",
           cat("is ", type == nullptr ? "missing" : type->dump(), ", must be \"gemma2\""));
    }
    const json* architectures = find("architectures");
    if (architectures == nullptr || architectures->is_null()) return;
    const bool known =
        architectures->is_array() && architectures->size() == 1 &&
        ((*architectures)[0] == "Gemma2ForCausalLM" || (*architectures)[0] == "Gemma2Model");
    if (!known) {
      fail("architectures",
           cat("is ",
               architectures->dump(),
               ", must be [\"Gemma2ForCausalLM\"] or [\"Gemma2Model\"]"));
    }
  }

  void sizes() {
    integer("vocab_size", config_.vocab_size);
    integer("hidden_size", config_.hidden_size);
    integer("intermediate_size", config_.intermediate_size);
    integer("num_hidden_layers", config_.num_hidden_layers);
    integer("num_attention_heads", config_.num_attention_heads);
    integer("num_key_value_heads", config_.num_key_value_heads);
    integer("head_dim", config_.head_dim);
    integer("max_position_embeddings", config_.max_position_embeddings);
  }

  void numbers() {
    real("query_pre_attn_scalar", config_.query_pre_attn_scalar);
    if (config_.query_pre_attn_scalar == kRelease9bScalar && config_.hidden_size == 3584) {
      warn("query_pre_attn_scalar",
           "is 224, as in the first 9B files; the released weights were trained with 256");
    }
    real("rms_norm_eps", config_.rms_norm_eps);
    real("initializer_range", config_.initializer_range);
    cap("attn_logit_softcapping", config_.attn_logit_softcapping);
    cap("final_logit_softcapping", config_.final_logit_softcapping);
    const json* tie = find("tie_word_embeddings");
    if (tie == nullptr) return;
    if (!tie->is_boolean())
      fail("tie_word_embeddings", cat("is ", tie->dump(), ", must be a boolean"));
    config_.tie_word_embeddings = tie->get<bool>();
  }

  // transformers 4 has rope_theta at the top, 5 inside rope_parameters; both may be there if equal.
  void rope() {
    real("rope_theta", config_.rope_theta);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const json* object = find(key);
      if (object == nullptr || object->is_null()) continue;
      if (!object->is_object())
        fail(key, cat("is ", object->dump(), ", must be an object or null"));
      for (const auto& [name, value] : object->items())
        rope_entry(cat(key, ".", name), name, value);
    }
  }
  void rope_entry(const std::string& path, const std::string& name, const json& value) {
    if (name == "rope_theta") {
      const double theta = to_real(path, value);
      if (root_.contains("rope_theta") && theta != config_.rope_theta) {
        fail(path,
             cat("is ",
                 value.dump(),
                 " but rope_theta is ",
                 root_["rope_theta"].dump(),
                 "; keep one of the two"));
      }
      config_.rope_theta = theta;
    } else if (name == "rope_type" || name == "type") {
      if (value != "default") {
        fail(path, cat("is ", value.dump(), ", only \"default\" is supported"));
      }
    } else if (name != "partial_rotary_factor" || value != 1.0) {
      fail(path, cat("is ", value.dump(), ", which is not supported; remove it to train without"));
    }
  }

  void window() {
    if (const json* value = find("sliding_window")) {
      config_.sliding_window = value->is_null() ? 0 : to_integer("sliding_window", *value);
      if (!value->is_null() && config_.sliding_window < 1) {
        fail("sliding_window",
             cat("is ", value->dump(), ", must be positive; null means no window"));
      }
    }
    const json* old_name = find("sliding_window_size");
    if (old_name != nullptr && *old_name != config_.sliding_window) {
      fail("sliding_window_size",
           cat("is ",
               old_name->dump(),
               " but sliding_window, the one in force, is ",
               config_.sliding_window == 0 ? "null" : std::to_string(config_.sliding_window),
               "; write sliding_window alone"));
    }
    const json* types = find("layer_types");
    if (types != nullptr && !types->is_null()) layer_types(*types);
  }
  void layer_types(const json& types) {
    if (!types.is_array()) fail("layer_types", cat("is ", types.dump(), ", must be a list"));
    std::vector<bool> sliding;
    bool usual = true;
    for (const json& type : types) {
      if (type != "sliding_attention" && type != "full_attention") {
        fail(cat("layer_types[", sliding.size(), "]"),
             cat("is ", type.dump(), ", must be \"sliding_attention\" or \"full_attention\""));
      }
      usual = usual && (type == "sliding_attention") == (sliding.size() % 2 == 0);
      sliding.push_back(type == "sliding_attention");
    }
    const bool complete = static_cast<std::int64_t>(sliding.size()) == config_.num_hidden_layers;
    if (complete && std::count(sliding.begin(), sliding.end(), true) == 0) {
      config_.sliding_window = 0;  // one spelling of "no window anywhere"
    } else if (!usual || !complete) {
      config_.sliding_layers = sliding;
    }
  }

  void ids() {
    if (const json* value = find("pad_token_id")) {
      config_.pad_token_id = value->is_null() ? -1 : id("pad_token_id", *value);
    }
    if (const json* value = find("bos_token_id")) {
      config_.bos_token_id = value->is_null() ? -1 : id("bos_token_id", *value);
    }
    const json* eos = find("eos_token_id");
    if (eos == nullptr) return;
    config_.eos_token_ids.clear();
    if (eos->is_array()) {
      for (const json& value : *eos) config_.eos_token_ids.push_back(id("eos_token_id", value));
    } else if (!eos->is_null()) {
      config_.eos_token_ids.push_back(id("eos_token_id", *eos));
    }
  }

  // Values under which transformers would compute something else than this program.
  void refused() {
    const json* activation = find("hidden_activation");
    if (activation != nullptr && !activation->is_null() && *activation != kActivation) {
      fail("hidden_activation",
           cat("is ", activation->dump(), ", only \"", kActivation, "\" is supported"));
    }
    for (const char* key : {"attention_bias", "use_bidirectional_attention"}) {
      const json* value = find(key);
      if (value == nullptr || value->is_null() || *value == false) continue;
      fail(key, cat("is ", value->dump(), ", only false is supported"));
    }
    const json* dropout = find("attention_dropout");
    if (dropout != nullptr && !dropout->is_null() && *dropout != 0) {
      fail("attention_dropout", cat("is ", dropout->dump(), ", only 0 is supported"));
    }
    const json* quantization = find("quantization_config");
    if (quantization != nullptr && !quantization->is_null()) {
      fail("quantization_config", "is set; only float32, bfloat16 and float16 weights can be read");
    }
  }

  void unknown_keys() {
    const std::vector<std::string> ignored(std::begin(kIgnoredKeys), std::end(kIgnoredKeys));
    for (const auto& [key, value] : root_.items()) {
      if (std::count(known_.begin(), known_.end(), key) > 0) continue;
      if (std::count(ignored.begin(), ignored.end(), key) > 0) continue;
      warn(key, "is not a key of Gemma 2 and has no effect" + base::did_you_mean(key, known_));
    }
  }

  const json& root_;
  const std::string& where_;
  Gemma2Config config_;
  std::vector<std::string> warnings_;
  std::vector<std::string> known_;
};

json integer_or_null(std::int64_t value, std::int64_t null_value) {
  return value == null_value ? json(nullptr) : json(value);
}

// transformers 5 checks declared types: an int where the value is one.
json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

void put_window(const Gemma2Config& c, nlohmann::ordered_json& out) {
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    types.emplace_back(c.is_sliding(layer) ? "sliding_attention" : "full_attention");
  }
  // transformers builds the sliding mask even when no layer uses it, and fails on null.
  out["sliding_window"] = c.sliding_window == 0 ? c.max_position_embeddings : c.sliding_window;
  if (c.sliding_window == 0 || !c.sliding_layers.empty()) out["layer_types"] = types;
}

}  // namespace

ParsedConfig parse_hf_config(std::string_view text, const std::string& where) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& e) {  // a number beyond double is an out_of_range
    throw base::DataError(cat(where, ": ", base::json_reason(e.what())));
  }
  if (!root.is_object()) throw base::DataError(cat(where, ": is not a JSON object"));
  return ConfigReader(root, where).read();
}

ParsedConfig read_hf_config(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  return parse_hf_config(base::read_file(file), file.string());
}

std::string to_hf_config(const Gemma2Config& c, std::string_view dtype) {
  nlohmann::ordered_json out;
  out["architectures"] = {"Gemma2ForCausalLM"};
  out["model_type"] = "gemma2";
  out["vocab_size"] = c.vocab_size;
  out["hidden_size"] = c.hidden_size;
  out["intermediate_size"] = c.intermediate_size;
  out["num_hidden_layers"] = c.num_hidden_layers;
  out["num_attention_heads"] = c.num_attention_heads;
  out["num_key_value_heads"] = c.num_key_value_heads;
  out["head_dim"] = c.head_dim;
  out["query_pre_attn_scalar"] = number(c.query_pre_attn_scalar);
  out["rms_norm_eps"] = c.rms_norm_eps;
  out["rope_theta"] = c.rope_theta;
  out["max_position_embeddings"] = c.max_position_embeddings;
  put_window(c, out);
  out["attn_logit_softcapping"] =
      c.attn_logit_softcapping == 0 ? json(nullptr) : json(c.attn_logit_softcapping);
  out["final_logit_softcapping"] =
      c.final_logit_softcapping == 0 ? json(nullptr) : json(c.final_logit_softcapping);
  out["hidden_activation"] = kActivation;
  out["hidden_act"] = kActivation;
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["tie_word_embeddings"] = c.tie_word_embeddings;
  out["initializer_range"] = c.initializer_range;
  out["use_cache"] = true;
  out["pad_token_id"] = integer_or_null(c.pad_token_id, -1);
  out["bos_token_id"] = integer_or_null(c.bos_token_id, -1);
  out["eos_token_id"] = c.eos_token_ids.empty()       ? json(nullptr)
                        : c.eos_token_ids.size() == 1 ? json(c.eos_token_ids[0])
                                                      : json(c.eos_token_ids);
  out["torch_dtype"] = dtype;
  return out.dump(2) + "\n";
}

}  // namespace g2::model
