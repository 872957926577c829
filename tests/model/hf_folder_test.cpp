// Must catch: a shard that is cut or lacks what the index promises, tensors that are missing,
// unknown or of another shape, un-tying in silence, a head written when tied, rounding other than
// to nearest even, a folder overwritten or left in part.
#include "model/hf_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/bf16.h"
#include "base/error.h"
#include "base/file.h"
#include "model/hf_config.h"
#include "model/hf_export.h"
#include "tests/support/support.h"

namespace g2::model {
namespace {

using io::FileType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Gemma2Config tiny() {
  Gemma2Config c;
  c.vocab_size = 11;
  c.hidden_size = 4;
  c.intermediate_size = 6;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.num_key_value_heads = 1;
  c.head_dim = 2;
  c.query_pre_attn_scalar = 2;
  return c;
}

// A value of its own for each element of each parameter.
float value_of(const Parameter& parameter, std::int64_t i) {
  return std::sin(static_cast<float>(parameter.offset + i + 1)) * 3;
}
void fill(const Parameter& parameter, std::int64_t begin, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = value_of(parameter, begin + static_cast<std::int64_t>(i));
  }
}

struct TestTensor {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

void write_tensors(const std::filesystem::path& path, const std::vector<TestTensor>& tensors) {
  std::vector<io::TensorInfo> infos;
  for (const TestTensor& t : tensors)
    infos.push_back({.name = t.name, .type = t.type, .shape = t.shape});
  std::string file;
  io::SafetensorsWriter writer(infos, {}, [&file](io::Bytes bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  for (const TestTensor& t : tensors) {
    if (t.type == FileType::kF32) {
      writer.append(std::as_bytes(std::span(t.values)));
    } else {  // any 16-bit type: bf16 bits
      std::vector<bf16> rounded;
      for (const float value : t.values) rounded.emplace_back(value);
      writer.append(std::as_bytes(std::span(rounded)));
    }
  }
  writer.finish();
  test::write_text(path, file);
}

std::vector<TestTensor> tensors_of(const Gemma2Config& config) {
  std::vector<TestTensor> tensors;
  const ParameterTable table(config);
  for (const Parameter& p : table.parameters()) {
    std::vector<float> values(static_cast<std::size_t>(p.count));
    fill(p, 0, values);
    tensors.push_back({.name = p.name, .shape = p.shape, .values = values});
  }
  return tensors;
}

struct Loaded {
  std::map<std::string, std::vector<float>> values;
  std::vector<std::string> notices;
};

Loaded load(const std::filesystem::path& folder, const Gemma2Config& config) {
  Loaded loaded;
  loaded.notices =
      load_hf_weights(folder,
                      config,
                      ParameterTable(config),
                      [&](const Parameter& p, std::int64_t begin, std::span<const float> values) {
                        std::vector<float>& all = loaded.values[p.name];
                        EXPECT_EQ(begin, static_cast<std::int64_t>(all.size()));
                        all.insert(all.end(), values.begin(), values.end());
                      });
  return loaded;
}

std::string load_error(const std::filesystem::path& folder, const Gemma2Config& config) {
  try {
    load_hf_weights(folder, config, ParameterTable(config), [](auto&&...) {
      ADD_FAILURE() << "a value was handed out before all was checked";
    });
  } catch (const base::DataError& e) {
    return e.what();
  }
  return "no error";
}

void expect_values(const Loaded& loaded, const Gemma2Config& config) {
  const ParameterTable table(config);
  for (const Parameter& p : table.parameters()) {
    const std::vector<float>& got = loaded.values.at(p.name);
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), p.count);
    for (std::int64_t i = 0; i < p.count; ++i) ASSERT_EQ(got[i], value_of(p, i)) << p.name;
  }
}

std::vector<TestTensor>::iterator named(std::vector<TestTensor>& tensors, const std::string& name) {
  return std::find_if(
      tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
}

TEST(LoadHfWeights, ReadsNamesWithAndWithoutThePrefix) {
  const test::TempFolder folder;
  std::vector<TestTensor> tensors = tensors_of(tiny());
  write_tensors(folder / "model.safetensors", tensors);
  expect_values(load(folder.path(), tiny()), tiny());
  for (TestTensor& t : tensors) t.name = t.name.substr(std::strlen("model."));
  write_tensors(folder / "model.safetensors", tensors);
  const Loaded loaded = load(folder.path(), tiny());
  expect_values(loaded, tiny());
  EXPECT_THAT(loaded.notices, IsEmpty());
}

TEST(LoadHfWeights, NamesWhatIsMissingUnknownOrMisshapen) {
  const test::TempFolder folder;
  const auto path = folder / "model.safetensors";
  std::vector<TestTensor> tensors = tensors_of(tiny());
  const auto with = [&](auto&& change) {
    std::vector<TestTensor> changed = tensors;
    change(changed);
    write_tensors(path, changed);
    return load_error(folder.path(), tiny());
  };
  EXPECT_THAT(with([](auto& t) { t.erase(named(t, "model.norm.weight")); }),
              HasSubstr("no tensor model.norm.weight; incomplete download"));
  EXPECT_THAT(with([](auto& t) { t.erase(t.begin() + 1, t.end()); }), HasSubstr("and 22 more"));
  EXPECT_THAT(
      with([](auto& t) {
        t.push_back({.name = "model.layers.0.self_attn.q_proj.bias", .shape = {1}, .values = {0}});
      }),
      AllOf(HasSubstr("q_proj.bias is no tensor of this Gemma 2"),
            HasSubstr("did you mean 'model.layers.0.self_attn.q_proj.weight'?")));
  EXPECT_THAT(
      with([](auto& t) {
        named(t, "model.norm.weight")->shape = {2, 2};
      }),
      AllOf(HasSubstr("model.safetensors: model.norm.weight has shape [2, 2], expected [4]"),
            HasSubstr("use the config.json that belongs to this file")));
  EXPECT_THAT(with([](auto& t) { named(t, "model.norm.weight")->type = FileType::kI16; }),
              HasSubstr("has type I16, expected F32, BF16 or F16"));
  EXPECT_THAT(
      with([](auto& t) { t.push_back({.name = "norm.weight", .shape = {1}, .values = {0}}); }),
      HasSubstr("with and without 'model.'"));
}

TEST(LoadHfWeights, LeavesComputedTablesOut) {
  const test::TempFolder folder;
  std::vector<TestTensor> tensors = tensors_of(tiny());
  tensors.push_back(
      {.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {1}, .values = {1}});
  write_tensors(folder / "model.safetensors", tensors);
  EXPECT_THAT(load(folder.path(), tiny()).notices, ElementsAre(HasSubstr("inv_freq is computed")));
}

TEST(LoadHfWeights, RefusesValuesThatAreNotFinite) {
  const test::TempFolder folder;
  std::vector<TestTensor> tensors = tensors_of(tiny());
  named(tensors, "model.layers.1.mlp.up_proj.weight")->values[7] =
      std::numeric_limits<float>::quiet_NaN();
  write_tensors(folder / "model.safetensors", tensors);
  try {
    load(folder.path(), tiny());
    FAIL();
  } catch (const base::DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("model.layers.1.mlp.up_proj.weight holds nan at element 7"));
  }
}

TEST(LoadHfWeights, FollowsTheRulesOfTheTiedHead) {
  const test::TempFolder folder;
  const auto path = folder / "model.safetensors";
  const std::vector<TestTensor> tensors = tensors_of(tiny());
  std::vector<TestTensor> changed = tensors;
  changed.push_back(tensors[0]);  // a bit-equal duplicate, as some exporters write
  changed.back().name = "lm_head.weight";
  write_tensors(path, changed);
  EXPECT_THAT(load(folder.path(), tiny()).notices, IsEmpty());

  changed.back().values[3] += 1;
  write_tensors(path, changed);
  const Loaded loaded = load(folder.path(), tiny());
  expect_values(loaded, tiny());  // the embedding wins
  EXPECT_THAT(loaded.notices, ElementsAre(HasSubstr("lm_head.weight differs")));

  Gemma2Config untied = tiny();
  untied.tie_word_embeddings = false;
  EXPECT_EQ(load(folder.path(), untied).values.at("lm_head.weight"), changed.back().values);

  changed = tensors;
  changed[0].name = "lm_head.weight";  // the only table there is
  write_tensors(path, changed);
  expect_values(load(folder.path(), tiny()), tiny());

  write_tensors(path, tensors);
  EXPECT_THAT(load_error(folder.path(), untied), HasSubstr("tie_word_embeddings false"));
}

class ShardedFolder : public testing::Test {
 protected:
  ShardedFolder() {
    const std::vector<TestTensor> tensors = tensors_of(tiny());
    write_tensors(folder_ / "a.safetensors", {tensors.begin(), tensors.begin() + 9});
    write_tensors(folder_ / "b.safetensors", {tensors.begin() + 9, tensors.end()});
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      index_["weight_map"][tensors[i].name] = i < 9 ? "a.safetensors" : "b.safetensors";
    }
    index_["metadata"] = {{"total_size", 1}, {"total_parameters", 2}};
    write_index();
  }
  void write_index() { test::write_text(folder_ / "model.safetensors.index.json", index_.dump()); }

  test::TempFolder folder_;
  nlohmann::json index_;
};

TEST_F(ShardedFolder, IsRead) {
  expect_values(load(folder_.path(), tiny()), tiny());
}

TEST_F(ShardedFolder, NamesAHalfDownloadedShard) {
  std::filesystem::resize_file(folder_ / "b.safetensors",
                               std::filesystem::file_size(folder_ / "b.safetensors") - 5);
  EXPECT_THAT(load_error(folder_.path(), tiny()),
              AllOf(HasSubstr("b.safetensors: "), HasSubstr("incomplete download?")));
}

TEST_F(ShardedFolder, NamesATensorThatAShardLacks) {
  index_["weight_map"]["model.norm.weight"] = "a.safetensors";
  write_index();
  EXPECT_THAT(load_error(folder_.path(), tiny()),
              HasSubstr("a.safetensors: has no tensor model.norm.weight, which "
                        "model.safetensors.index.json places there"));
}

TEST_F(ShardedFolder, NamesAMissingShardAndABadIndex) {
  std::filesystem::remove(folder_ / "b.safetensors");
  EXPECT_THROW(load(folder_.path(), tiny()), base::IoError);
  index_["weight_map"]["model.norm.weight"] = "../b.safetensors";
  write_index();
  EXPECT_THAT(load_error(folder_.path(), tiny()), HasSubstr("expected the name of a file"));
  test::write_text(folder_ / "model.safetensors.index.json", "{");
  EXPECT_THAT(load_error(folder_.path(), tiny()), HasSubstr("index.json: parse error"));
  test::write_text(folder_ / "model.safetensors.index.json", "[]");
  EXPECT_THAT(load_error(folder_.path(), tiny()), HasSubstr("has no weight_map"));
  std::filesystem::remove(folder_ / "model.safetensors.index.json");
  test::write_text(folder_ / "model-00001-of-00002.safetensors", "");
  EXPECT_THAT(load_error(folder_.path(), tiny()), HasSubstr("but no model.safetensors.index.json"));
}

TEST(LoadHfWeights, SaysWhatToDoWithOtherFormats) {
  const test::TempFolder folder;
  EXPECT_THAT(load_error(folder.path(), tiny()), HasSubstr("no model.safetensors"));
  test::write_text(folder / "pytorch_model.bin", "");
  EXPECT_THAT(load_error(folder.path(), tiny()), HasSubstr("convert it with transformers"));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Export : public testing::Test {
 protected:
  std::vector<std::string> write(HfExport options) {
    options.folder = folder_ / "out";
    return write_hf_folder(files_, options, config_, fill);
  }

  test::TempFolder folder_;
  base::RealFileSystem files_;
  Gemma2Config config_ = tiny();
};

TEST_F(Export, ReadsBackBitForBit) {
  for (const std::uint64_t limit : {std::uint64_t{1} << 40, std::uint64_t{300}, std::uint64_t{1}}) {
    write({.type = ExportType::kF32, .max_shard_bytes = limit, .force = true});
    expect_values(load(folder_ / "out", config_), config_);
    EXPECT_EQ(read_hf_config(folder_ / "out").config, config_);
  }
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("out"));
}

std::int64_t resident_bytes() {
  std::int64_t total = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_F(Export, LoadingKeepsOnlyAPieceResident) {
  config_.vocab_size = 4 << 20;  // a table of 64 MiB in f32
  write({.type = ExportType::kF32});
  const std::int64_t before = resident_bytes();
  std::int64_t most = 0;
  load_hf_weights(folder_ / "out", config_, ParameterTable(config_), [&](auto&&...) {
    most = std::max(most, resident_bytes() - before);
  });
  EXPECT_LT(most, 48 << 20);
}

TEST_F(Export, UntiedWritesBothTables) {
  config_.tie_word_embeddings = false;
  write({.type = ExportType::kF32});
  expect_values(load(folder_ / "out", config_), config_);
  EXPECT_FALSE(read_hf_config(folder_ / "out").config.tie_word_embeddings);
}

TEST_F(Export, NeverWritesATiedHead) {
  write({});
  const io::SafetensorsFile file(folder_ / "out/model.safetensors");
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  EXPECT_EQ(file.tensors().size(), 11U * 2 + 2);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST_F(Export, Bf16RoundsToNearestEven) {
  write({.type = ExportType::kBF16});
  const Loaded loaded = load(folder_ / "out", config_);
  const ParameterTable table(config_);
  for (const Parameter& p : table.parameters()) {
    for (std::int64_t i = 0; i < p.count; ++i) {
      ASSERT_EQ(loaded.values.at(p.name)[i], static_cast<float>(bf16(value_of(p, i))));
    }
  }
}

TEST_F(Export, IndexHoldsTheTotalSizeAndEveryTensor) {
  write({.type = ExportType::kBF16, .max_shard_bytes = 200});
  const auto index =
      nlohmann::json::parse(base::read_file(folder_ / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 2 * parameter_count(config_));
  EXPECT_EQ(index["weight_map"].size(), 24U);
  EXPECT_THAT(index["weight_map"]["model.embed_tokens.weight"].get<std::string>(),
              testing::MatchesRegex("model-00001-of-[0-9]{5}\\.safetensors"));
}

TEST_F(Export, CopiesTokenizerAndGenerationFiles) {
  std::filesystem::create_directory(folder_ / "base");
  test::write_text(folder_ / "base/tokenizer.model", "pieces");
  test::write_text(folder_ / "base/chat_template.jinja", "turns");
  test::write_text(folder_ / "base/generation_config.json", R"({"eos_token_id": [1, 107]})");
  test::write_text(folder_ / "base/model.safetensors", "weights of the base model");
  EXPECT_THAT(write({.tokenizer = folder_ / "base"}), IsEmpty());
  EXPECT_THAT(names_in(folder_ / "out"),
              ElementsAre("chat_template.jinja",
                          "config.json",
                          "generation_config.json",
                          "model.safetensors",
                          "tokenizer.model"));
  EXPECT_EQ(base::read_file(folder_ / "out/generation_config.json"),
            R"({"eos_token_id": [1, 107]})");
  write({.tokenizer = folder_ / "base/tokenizer.model", .pieces = {.bos = "<s>"}, .force = true});
  EXPECT_THAT(base::read_file(folder_ / "out/tokenizer_config.json"),
              AllOf(HasSubstr("\"bos_token\": \"<s>\""), HasSubstr("\"add_bos_token\": true")));
  EXPECT_THAT(names_in(folder_ / "out"),
              ElementsAre("config.json",
                          "generation_config.json",
                          "model.safetensors",
                          "tokenizer.model",
                          "tokenizer_config.json"));
}

TEST_F(Export, LeavesAFilledFolderAloneUnlessForced) {
  write({.type = ExportType::kF32});
  config_.rope_theta = 500;
  EXPECT_THROW(write({}), base::FolderError);
  EXPECT_EQ(read_hf_config(folder_ / "out").config.rope_theta, 10000);
  write({.force = true});
  EXPECT_EQ(read_hf_config(folder_ / "out").config.rope_theta, 500);
  std::filesystem::create_directory(folder_ / "out/mine");
  EXPECT_THROW(write({.force = true}), base::FolderError);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/mine"));
}

TEST_F(Export, AFailureLeavesNothingBehindAndTheOldFolder) {
  write({});
  const auto before = names_in(folder_ / "out");
  EXPECT_THROW(write_hf_folder(files_,
                               {.folder = folder_ / "out", .force = true},
                               config_,
                               [](const Parameter& p, std::int64_t, std::span<float>) {
                                 if (p.name == "model.norm.weight") throw base::IoError("disk");
                               }),
               base::IoError);
  EXPECT_EQ(names_in(folder_ / "out"), before);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("out"));
}

TEST_F(Export, WarnsOfScalesThatOtherProgramsDoNotTake) {
  const std::filesystem::path tokenizer = folder_ / "tokenizer.model";
  test::write_text(tokenizer, "pieces");
  EXPECT_THAT(write({.tokenizer = tokenizer, .force = true}), IsEmpty());  // scalar = head_dim
  config_.query_pre_attn_scalar = 3;
  EXPECT_THAT(write({.tokenizer = tokenizer, .force = true}),
              ElementsAre(HasSubstr("query_pre_attn_scalar is 3, but llama.cpp will take 2")));
  config_.query_pre_attn_scalar = 2.5;
  EXPECT_THAT(write({.tokenizer = tokenizer, .force = true}),
              ElementsAre(HasSubstr("transformers 5 refuses"), HasSubstr("llama.cpp")));
  config_.num_hidden_layers = 46;  // taken for a 27B: hidden_size / heads
  config_.query_pre_attn_scalar = 2;
  EXPECT_THAT(write({.tokenizer = tokenizer, .force = true}), IsEmpty());
}

}  // namespace
}  // namespace g2::model
