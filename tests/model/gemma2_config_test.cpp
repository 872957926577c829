// Must catch: head_dim taken as d/H, 9B's 224, a window or cap whose null is lost, RoPE values read
// from one place only, the legacy activation key winning, keys without effect passing in silence,
// wrong parameter counts, PaLM's attention FLOPs.
#include "model/gemma2_config.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "model/hf_config.h"
#include "tests/support/support.h"

namespace g2::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParsedConfig parse(const std::string& members) {
  return parse_hf_config(
      R"({"model_type": "gemma2")" + (members.empty() ? "" : ", " + members) + "}",
      "m/config.json");
}

std::string error_of(const std::string& text) {
  try {
    parse_hf_config(text, "m/config.json");
  } catch (const base::DataError& e) {
    return e.what();
  }
  return "no error";
}
std::string member_error(const std::string& members) {
  return error_of(R"({"model_type": "gemma2", )" + members + "}");
}

TEST(Preset, HasThePublishedParameterCounts) {
  EXPECT_EQ(parameter_count(preset("gemma2_2b")), 2'614'341'888);
  EXPECT_EQ(parameter_count(preset("gemma2_9b")), 9'241'705'984);
  EXPECT_EQ(parameter_count(preset("gemma2_27b")), 27'227'128'320);
  EXPECT_EQ(embedding_parameter_count(preset("gemma2_9b")), 917'504'000);
  Gemma2Config untied = preset("gemma2_2b");
  untied.tie_word_embeddings = false;
  EXPECT_EQ(parameter_count(untied), 2'614'341'888 + 589'824'000);
}

TEST(Preset, HasTheScalesThatOthersGotWrong) {
  EXPECT_EQ(preset("gemma2_9b").query_pre_attn_scalar, 256);
  EXPECT_EQ(preset("gemma2_27b").query_pre_attn_scalar, 144);
  EXPECT_EQ(preset("gemma2_27b").head_dim, 128);
  for (const std::string& name : preset_names()) EXPECT_FALSE(first_problem(preset(name)));
}

TEST(Preset, UnknownNameSuggestsOne) {
  try {
    preset("gemma_9b");
    FAIL();
  } catch (const base::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean 'gemma2_9b'?"));
  }
}

TEST(Flops, CountVisiblePairsOnly) {
  const auto giga = [](const char* name, std::int64_t t) {
    return training_flops_per_token(preset(name), t) / 1e9;
  };
  EXPECT_NEAR(giga("gemma2_2b", 4096), 16.994, 5e-4);
  EXPECT_NEAR(giga("gemma2_2b", 8192), 17.975, 5e-4);
  EXPECT_NEAR(giga("gemma2_9b", 8192), 62.846, 5e-4);
  EXPECT_NEAR(giga("gemma2_27b", 4096), 167.989, 5e-4);
  EXPECT_NEAR(giga("gemma2_27b", 8192), 171.462, 5e-4);
}

// 2 layers, d = 2, one head of 2, f = 3, V = 5: a layer has 4 * 2 * 2 + 3 * 2 * 3 = 34 multiplied
// weights, the head 10. Attention costs 12 * 2 a visible pair and layer.
TEST(Flops, CountPackedRowsByHand) {
  Gemma2Config c;
  c.vocab_size = 5;
  c.hidden_size = 2;
  c.intermediate_size = 3;
  c.num_hidden_layers = 2;
  c.num_attention_heads = c.num_key_value_heads = 1;
  c.head_dim = 2;
  c.sliding_window = 2;
  // Two documents of 3 and 1 tokens: 3 + 2 + 1 + 1 pairs, in the sliding layer 2 + 2 + 1 + 1.
  EXPECT_EQ(training_flops(c, 4, {.full = 7, .sliding = 6}), 6 * 78 * 4 + 24 * (7 + 6));
  // One row of 4: 10 pairs, 7 in the sliding layer.
  EXPECT_EQ(training_flops_per_token(c, 4) * 4, 6 * 78 * 4 + 24 * (10 + 7));
}

TEST(HfConfig, MissingKeysTakeTheClassDefaults) {
  const ParsedConfig parsed = parse("");
  EXPECT_EQ(parsed.config, Gemma2Config());
  EXPECT_THAT(parsed.warnings, IsEmpty());
  EXPECT_EQ(parse(R"("hidden_size": 4096)").config.head_dim, 256);
  EXPECT_TRUE(parsed.config.is_sliding(0));
  EXPECT_FALSE(parsed.config.is_sliding(25));
}

TEST(HfConfig, OldAndNewSpellingsOfTheNineBAgree) {
  const std::string sizes =
      R"("architectures": ["Gemma2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 14336,
         "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, )";
  const auto v4 =
      parse(sizes + R"("hidden_act": "gelu", "rope_theta": 10000.0, "rope_scaling": null,
      "sliding_window": 4096, "sliding_window_size": 4096, "cache_implementation": "hybrid",
      "torch_dtype": "float32", "eos_token_id": 1, "query_pre_attn_scalar": 256)");
  const auto v5 =
      parse(sizes + R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
      "dtype": "bfloat16", "eos_token_id": [1, 107], "use_bidirectional_attention": null)");
  EXPECT_THAT(v4.warnings, IsEmpty());
  EXPECT_THAT(v5.warnings, IsEmpty());
  EXPECT_EQ(v4.config, preset("gemma2_9b"));
  EXPECT_THAT(v5.config.eos_token_ids, ElementsAre(1, 107));
}

TEST(HfConfig, ReadsRopeThetaFromEitherPlace) {
  EXPECT_EQ(parse(R"("rope_theta": 500)").config.rope_theta, 500);
  EXPECT_EQ(parse(R"("rope_parameters": {"rope_theta": 500})").config.rope_theta, 500);
  EXPECT_THAT(member_error(R"("rope_theta": 500, "rope_parameters": {"rope_theta": 600})"),
              HasSubstr("m/config.json: rope_parameters.rope_theta is 600 but rope_theta is 500"));
  EXPECT_THAT(member_error(R"("rope_scaling": {"type": "linear", "factor": 2.0})"),
              HasSubstr("rope_scaling."));
  EXPECT_THAT(member_error(R"("rope_parameters": {"rope_type": "yarn"})"),
              HasSubstr("rope_parameters.rope_type is \"yarn\""));
}

TEST(HfConfig, NullTurnsWindowAndCapsOff) {
  const Gemma2Config off = parse(R"("sliding_window": null, "attn_logit_softcapping": null,
      "final_logit_softcapping": null, "pad_token_id": null, "bos_token_id": null,
      "eos_token_id": null)")
                               .config;
  EXPECT_EQ(off.sliding_window, 0);
  EXPECT_FALSE(off.is_sliding(0));
  EXPECT_EQ(off.attn_logit_softcapping, 0);
  EXPECT_EQ(off.final_logit_softcapping, 0);
  EXPECT_EQ(off.pad_token_id, -1);
  EXPECT_EQ(off.bos_token_id, -1);
  EXPECT_THAT(off.eos_token_ids, IsEmpty());
}

TEST(HfConfig, ObeysLayerTypes) {
  const Gemma2Config c = parse(R"("num_hidden_layers": 3,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention"])")
                             .config;
  EXPECT_FALSE(c.is_sliding(0));
  EXPECT_TRUE(c.is_sliding(1));
  EXPECT_TRUE(c.is_sliding(2));
  EXPECT_THAT(member_error(R"("layer_types": ["full_attention"])"),
              HasSubstr("layer_types has 1 entries, must have num_hidden_layers 26"));
  EXPECT_THAT(member_error(R"("layer_types": ["chunked_attention"])"),
              HasSubstr("layer_types[0] is \"chunked_attention\""));
}

TEST(HfConfig, WarnsOfTheOld9bScaleAndOfKeysWithoutEffect) {
  EXPECT_THAT(parse(R"("hidden_size": 3584, "query_pre_attn_scalar": 224)").warnings,
              ElementsAre(HasSubstr("query_pre_attn_scalar is 224")));
  EXPECT_THAT(parse(R"("attn_logit_softcaping": 50.0)").warnings,
              ElementsAre(AllOf(HasSubstr("m/config.json: attn_logit_softcaping"),
                                HasSubstr("did you mean 'attn_logit_softcapping'?"))));
}

TEST(HfConfig, RefusesWhatChangesTheMathematics) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("hidden_activation": "silu", "hidden_act": "gelu_pytorch_tanh")", "hidden_activation is"},
      {R"("attention_bias": true)", "attention_bias is true"},
      {R"("attention_dropout": 0.1)", "attention_dropout is 0.1"},
      {R"("use_bidirectional_attention": true)", "use_bidirectional_attention is true"},
      {R"("quantization_config": {"bits": 4})", "quantization_config"},
      {R"("sliding_window": 4096, "sliding_window_size": 2048)", "sliding_window_size is 2048"},
      {R"("sliding_window_size": 2048)", "sliding_window_size is 2048"},
      {R"("architectures": ["Gemma2ForSequenceClassification"])", "architectures is"},
  };
  for (const auto& [members, message] : cases)
    EXPECT_THAT(member_error(members), HasSubstr(message));
  EXPECT_THAT(error_of(R"({"model_type": "gemma3"})"), HasSubstr("model_type is \"gemma3\""));
  EXPECT_THAT(error_of("{}"), HasSubstr("model_type is missing"));
}

TEST(HfConfig, RefusesValuesNoModelCanHave) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("num_key_value_heads": 3)", "num_attention_heads is 8, must be a multiple of"},
      {R"("head_dim": 33)", "head_dim is 33, must be even"},
      {R"("head_dim": 1.5)", "head_dim is 1.5, must be an integer"},
      {R"("head_dim": "256")", "head_dim is \"256\", must be an integer"},
      {R"("vocab_size": 0)", "vocab_size is 0"},
      {R"("vocab_size": 18446744073709551615)", "must be an integer"},
      {R"("hidden_size": 2147483648)", "hidden_size is 2147483648"},
      {R"("hidden_size": 2147483640, "num_hidden_layers": 2147483647)", "over 1e15 parameters"},
      {R"("attn_logit_softcapping": 0)", "null turns it off"},
      {R"("final_logit_softcapping": -30.0)", "final_logit_softcapping is -30.0"},
      {R"("sliding_window": 0)", "null means no window"},
      {R"("rms_norm_eps": 0)", "rms_norm_eps is 0, must be positive"},
      {R"("pad_token_id": -1)", "null means none"},
      {R"("eos_token_id": [1, 256000])", "eos_token_id is 256000, must be below vocab_size"},
      {R"("tie_word_embeddings": 1)", "must be a boolean"},
  };
  for (const auto& [members, message] : cases)
    EXPECT_THAT(member_error(members), HasSubstr(message));
  EXPECT_THAT(error_of("{\"model_type\":\n gemma2}"),
              HasSubstr("m/config.json: parse error at line 2"));
  EXPECT_THAT(member_error(R"("rope_theta": 1e999)"), HasSubstr("m/config.json: number overflow"));
  EXPECT_THAT(error_of("[]"), HasSubstr("is not a JSON object"));
}

TEST(HfConfig, WrittenTextReadsBackTheSame) {
  std::vector<Gemma2Config> configs;
  for (const std::string& name : preset_names()) configs.push_back(preset(name));
  Gemma2Config odd = preset("gemma2_2b");
  odd.num_hidden_layers = 3;
  odd.sliding_layers = {false, true, true};
  odd.query_pre_attn_scalar = 10.5;
  odd.attn_logit_softcapping = 0;
  odd.tie_word_embeddings = false;
  odd.pad_token_id = -1;
  odd.eos_token_ids = {1, 107};
  configs.push_back(odd);
  odd.sliding_layers.clear();
  odd.sliding_window = 0;
  odd.eos_token_ids.clear();
  configs.push_back(odd);
  for (const Gemma2Config& config : configs) {
    const ParsedConfig back = parse_hf_config(to_hf_config(config, "float32"), "written");
    EXPECT_EQ(back.config, config);
    EXPECT_THAT(back.warnings, IsEmpty());
  }
}

TEST(HfConfig, WritesTheKeysThatOtherReadersNeed) {
  const auto root = nlohmann::json::parse(to_hf_config(preset("gemma2_27b"), "bfloat16"));
  EXPECT_EQ(root["hidden_activation"], "gelu_pytorch_tanh");
  EXPECT_EQ(root["hidden_act"], "gelu_pytorch_tanh");
  EXPECT_EQ(root["rope_theta"], 10000.0);
  EXPECT_FALSE(root.contains("rope_parameters"));
  EXPECT_FALSE(root.contains("layer_types"));  // unknown to older readers, and the default
  EXPECT_TRUE(root["query_pre_attn_scalar"].is_number_integer());  // transformers 5 checks the type
  EXPECT_EQ(root["head_dim"], 128);
  EXPECT_EQ(root["torch_dtype"], "bfloat16");
  EXPECT_EQ(root["tie_word_embeddings"], true);
}

TEST(HfConfig, ReadsAFolderAndNamesAMissingFile) {
  const test::TempFolder folder;
  EXPECT_THROW(read_hf_config(folder.path()), base::IoError);
  test::write_text(folder / "config.json", to_hf_config(preset("gemma2_9b"), "float32"));
  EXPECT_EQ(read_hf_config(folder.path()).config, preset("gemma2_9b"));
}

}  // namespace
}  // namespace g2::model
