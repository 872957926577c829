// Must catch: an override that is lost, null taken for "not given", sizes of the 2B model slipping
// into a model that names none.
#include "model/resolve.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "model/hf_config.h"
#include "tests/support/support.h"

namespace g2::model {
namespace {

using testing::HasSubstr;

std::string error_of(const config::ModelSettings& settings) {
  std::vector<std::string> warnings;
  try {
    resolve_model(settings, warnings);
  } catch (const base::UsageError& e) {
    return e.what();
  }
  return "no error";
}

config::ModelSettings small() {
  config::ModelSettings s;
  s.vocab_size = 300;
  s.hidden_size = 64;
  s.intermediate_size = 128;
  s.num_hidden_layers = 2;
  s.num_attention_heads = 4;
  s.num_key_value_heads = 2;
  s.head_dim = 16;
  return s;
}

TEST(ResolveModel, PutsGivenValuesOverThePreset) {
  config::ModelSettings s;
  s.preset = "gemma2_27b";
  s.num_hidden_layers = 2;
  s.eos_token_id = {{1, 107}};
  std::vector<std::string> warnings;
  Gemma2Config want = preset("gemma2_27b");
  EXPECT_NE(resolve_model(s, warnings), want);
  want.num_hidden_layers = 2;
  want.eos_token_ids = {1, 107};
  EXPECT_EQ(resolve_model(s, warnings), want);
}

TEST(ResolveModel, NullIsAValue) {
  config::ModelSettings s = small();
  std::vector<std::string> warnings;
  EXPECT_EQ(resolve_model(s, warnings).attn_logit_softcapping, 50);
  EXPECT_EQ(resolve_model(s, warnings).sliding_window, 4096);
  s.attn_logit_softcapping = std::optional<double>();
  s.sliding_window = std::optional<std::int64_t>();
  s.pad_token_id = std::optional<std::int64_t>();
  EXPECT_EQ(resolve_model(s, warnings).attn_logit_softcapping, 0);
  EXPECT_EQ(resolve_model(s, warnings).sliding_window, 0);
  EXPECT_EQ(resolve_model(s, warnings).pad_token_id, -1);
  s.pad_token_id = std::optional<std::int64_t>(7);
  EXPECT_EQ(resolve_model(s, warnings).pad_token_id, 7);
}

TEST(ResolveModel, WithoutPresetOrFolderEverySizeIsNeeded) {
  std::vector<std::string> warnings;
  EXPECT_EQ(resolve_model(small(), warnings).query_pre_attn_scalar, 16);
  config::ModelSettings s = small();
  s.head_dim.reset();
  EXPECT_THAT(error_of(s), HasSubstr("model.head_dim: is needed"));
  EXPECT_THAT(error_of({}), HasSubstr("model.vocab_size: is needed"));
}

TEST(ResolveModel, ReadsAFolderAndPassesItsWarningsOn) {
  const test::TempFolder folder;
  test::write_text(folder / "config.json",
                   R"({"model_type": "gemma2", "hidden_size": 3584, "num_attention_heads": 16,
                       "query_pre_attn_scalar": 224})");
  config::ModelSettings s;
  s.path = folder.path().string();
  s.query_pre_attn_scalar = 256;
  std::vector<std::string> warnings;
  const Gemma2Config c = resolve_model(s, warnings);
  EXPECT_EQ(c.hidden_size, 3584);
  EXPECT_EQ(c.query_pre_attn_scalar, 256);
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("is 224")));
}

TEST(ResolveModel, NamesTheSettingThatCannotBe) {
  config::ModelSettings s = small();
  s.num_key_value_heads = 3;
  EXPECT_THAT(error_of(s), HasSubstr("model.num_attention_heads: is 4, must be a multiple of"));
  s = small();
  s.layer_types = {{"full_attention"}};
  EXPECT_THAT(error_of(s), HasSubstr("model.layer_types: has 1 entries"));
  s.layer_types = {{"full_attention", "sliding"}};
  EXPECT_THAT(error_of(s), HasSubstr("holds 'sliding'"));
  s = small();
  s.hidden_activation = "relu";
  EXPECT_THAT(error_of(s), HasSubstr("only 'gelu_pytorch_tanh'"));
}

TEST(ResolveModel, APresetBesideAFolderSaysWhatItMustHold) {
  const test::TempFolder folder;
  config::ModelSettings s;
  s.preset = "gemma2_2b";
  s.path = (folder / "not_there").string();
  std::vector<std::string> warnings;
  EXPECT_EQ(resolve_model(s, warnings),
            preset("gemma2_2b"));  // to plan before the weights are there
  s.path = folder.path().string();
  test::write_text(folder / "config.json", to_hf_config(preset("gemma2_9b"), "float32"));
  EXPECT_THAT(error_of(s), HasSubstr("has hidden_size 3584, model.preset gemma2_2b has 2304"));
  test::write_text(folder / "config.json", to_hf_config(preset("gemma2_2b"), "float32"));
  EXPECT_EQ(resolve_model(s, warnings), preset("gemma2_2b"));
}

}  // namespace
}  // namespace g2::model
