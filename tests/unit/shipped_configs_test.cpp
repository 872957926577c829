// Must catch: a config in configs/ that no longer parses, lacks what training needs, or describes a
// model that cannot be; a preset the model knows and the settings table does not; a tiny config
// whose window or caps no longer bite.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "config/load.h"
#include "config/setting.h"
#include "model/gemma2_config.h"
#include "model/resolve.h"
#include "tests/support/support.h"

namespace g2 {
namespace {

std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_root() / "configs")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

model::Gemma2Config resolved(const std::filesystem::path& file,
                             const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> warnings;
  return model::resolve_model(config::load_config(file, overrides).config.model, warnings);
}

TEST(ShippedConfigs, AreCompleteAndDescribeAModel) {
  const auto files = shipped();
  ASSERT_GE(files.size(), 9U);
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename());
    const config::LoadedConfig loaded = config::load_config(file);
    EXPECT_NO_THROW(config::require_training(loaded));
    const std::string stem = file.stem().string();
    EXPECT_EQ(loaded.config.run.dir, "runs/" + stem);
    // The folder is the user's; the preset beside it says what it holds.
    const std::vector<std::string> overrides = {"model.path=null"};
    const model::Gemma2Config described = resolved(file, overrides);
    EXPECT_FALSE(model::first_problem(described));
    EXPECT_LE(loaded.config.data.seq_len, described.max_position_embeddings);
  }
}

TEST(ShippedConfigs, TinyExercisesWindowCapsAndGroups) {
  const auto file = test::source_root() / "configs/tiny.json";
  const config::RunConfig run = config::load_config(file).config;
  const model::Gemma2Config tiny = resolved(file);
  EXPECT_LT(tiny.sliding_window, run.data.seq_len);
  EXPECT_LE(tiny.attn_logit_softcapping, 3);
  EXPECT_LE(tiny.final_logit_softcapping, 4);
  EXPECT_GT(tiny.num_attention_heads, tiny.num_key_value_heads);
  EXPECT_NE(tiny.query_pre_attn_scalar, static_cast<double>(tiny.head_dim));
  EXPECT_EQ(run.data.packing, config::Packing::kDocuments);
}

TEST(ShippedConfigs, QuickstartIsSmall) {
  const auto count =
      model::parameter_count(resolved(test::source_root() / "configs/quickstart.json"));
  EXPECT_GT(count, 1'000'000);
  EXPECT_LT(count, 3'000'000);
}

TEST(SettingsTable, PresetsAreThoseOfTheModel) {
  const auto choices = config::find_setting("model.preset")->choices;
  EXPECT_TRUE(std::ranges::equal(choices, model::preset_names()));
}

}  // namespace
}  // namespace g2
