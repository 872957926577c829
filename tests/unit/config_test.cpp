// Must catch: a wrong line or column (comments, tabs, non-ASCII text, a byte-order mark); a
// misspelt, repeated or misplaced key accepted; numbers outside their range, caps of 0, fp16; null
// taken for "not given"; --set that ignores its value; a default that differs between struct,
// schema and page; settings that contradict one another; an effective config that reads back as
// another one; a hash that moves with the log level or stays with the learning rate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "config/describe.h"
#include "config/effective.h"
#include "config/load.h"
#include "config/setting.h"
#include "tests/support/support.h"

namespace g2::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

RunConfig parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "c.json", overrides).config;
}

// The message parse_config() refuses the text with; "" when it does not.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(text, "c.json", overrides);
    return "";
  } catch (const base::UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "not one line";
    return error.what();
  }
}

TEST(Config, EmptyObjectGivesTheDefaults) {
  const RunConfig config = parsed("{}");
  EXPECT_EQ(config.run.dir, "runs/default");
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(std::get<double>(config.data.validation), 0.05);
  EXPECT_EQ(config.train.micro_batch, config.train.global_batch);
  EXPECT_EQ(config.schedule.total_steps, config.train.max_steps);
  EXPECT_FALSE(config.model.sliding_window.has_value());
}

TEST(Config, ReadsEveryKindOfValue) {
  const RunConfig config = parsed(R"({
    "$schema": "config.schema.json",
    "run": {"dir": "runs/a", "seed": 9007199254740993},
    "model": {"sliding_window": null, "attn_logit_softcapping": 3, "eos_token_id": [1, 107],
              "layer_types": ["full_attention", "sliding_attention"], "tie_word_embeddings": false},
    "data": {"train": ["a.txt", "b/*.jsonl"], "validation": "v.jsonl", "packing": "documents"},
    "train": {"max_steps": 1e3, "precision": "bf16"},
    "schedule": {"kind": "wsd"}
  })");
  EXPECT_EQ(config.run.seed, 9007199254740993);  // not through a double
  ASSERT_TRUE(config.model.sliding_window.has_value());
  EXPECT_FALSE(config.model.sliding_window->has_value());
  EXPECT_EQ(**config.model.attn_logit_softcapping, 3.0);
  EXPECT_FALSE(config.model.final_logit_softcapping.has_value());
  EXPECT_EQ(config.model.eos_token_id, (std::vector<std::int64_t>{1, 107}));
  EXPECT_EQ(config.model.layer_types->front(), "full_attention");
  EXPECT_EQ(config.model.tie_word_embeddings, false);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.txt", "b/*.jsonl"}));
  EXPECT_EQ(std::get<1>(config.data.validation), std::vector<std::string>{"v.jsonl"});
  EXPECT_EQ(config.data.packing, Packing::kDocuments);
  EXPECT_EQ(config.train.max_steps, 1000);
  EXPECT_EQ(config.train.precision, Precision::kBf16);
  EXPECT_EQ(config.schedule.decay_steps, 100);
}

TEST(Config, PlacesAreExact) {
  EXPECT_EQ(refusal("{\n  \"optimizer\": {\"learning_rate\": -1e-5}}"),
            "c.json:2:34: optimizer.learning_rate is -1e-5, must be > 0");
  EXPECT_THAT(refusal("{ // \" {\n/* \" \n é */ \"run\": {\"seed\" /*:*/ : -1}}"),
              StartsWith("c.json:3:30: run.seed is -1, "));
  EXPECT_THAT(refusal("{\"run\": {\"dir\": \"é\\\"\\\\\", \"sed\": 1}}"),
              StartsWith("c.json:1:26: "));
  EXPECT_THAT(refusal("\xEF\xBB\xBF{\"run\": 1}"),
              StartsWith("c.json:1:9: run is 1, must be an object"));
  EXPECT_THAT(refusal("{\"data\": {\"train\": [\"a\",\r\n 3]}}"),
              StartsWith("c.json:2:2: data.train[1] is 3, must be a text"));
}

TEST(Config, BrokenJsonIsLocated) {
  EXPECT_THAT(refusal("{\n  \"run\": {\"seed\": 1,}\n}"),
              AllOf(StartsWith("c.json:2:21: not valid JSON: "), HasSubstr("unexpected '}'")));
  EXPECT_THAT(refusal(""), StartsWith("c.json:1:1: not valid JSON: "));
  EXPECT_THAT(refusal("{\"run\": {\"seed\": 1e999}}"), HasSubstr("c.json:1:"));
  EXPECT_THAT(refusal("{\"run\": {\"dir\": \"\xFF\"}}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("/* open"), HasSubstr("comment"));
  EXPECT_THAT(refusal("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested deeper"));
}

TEST(Config, UnknownKeysNameTheNearest) {
  EXPECT_EQ(refusal(R"({"optimizer": {"lerning_rate": 1}})"),
            "c.json:1:16: no setting \"optimizer.lerning_rate\"; did you mean "
            "'optimizer.learning_rate'?");
  EXPECT_THAT(refusal(R"({"train": {"learning_rate": 1}})"),
              HasSubstr("'optimizer.learning_rate'"));
  EXPECT_EQ(refusal(R"({"optimiser": {}})"),
            "c.json:1:2: no section \"optimiser\"; did you mean 'optimizer'?");
  EXPECT_THAT(refusal("{}", {"optimiser.eps=1"}), HasSubstr("did you mean 'optimizer.eps'?"));
  EXPECT_THAT(refusal("{}", {"optimizer.lr=1"}), HasSubstr("; see gemma2_train config"));
  EXPECT_THAT(refusal("{}", {"seed=1"}), HasSubstr("did you mean 'run.seed'?"));
  EXPECT_THAT(refusal(R"({"run.seed": 1})"), HasSubstr(R"("run": {"seed": ...})"));
  EXPECT_EQ(refusal("{\"run\": {\"seed\": 1,\n \"seed\": 1}}"),
            "c.json:2:2: key \"seed\" is given twice, first in line 1");
}

TEST(Config, RefusesWrongTypesAndRanges) {
  const auto says = [](const std::string& section, const std::string& body, const char* words) {
    EXPECT_THAT(refusal("{\"" + section + "\": {" + body + "}}"), HasSubstr(words));
  };
  says("optimizer", R"("learning_rate": "fast")", "is \"fast\", must be a number > 0");
  says("optimizer", R"("beta1": 1)", "optimizer.beta1 is 1, must be >= 0 and < 1");
  says("optimizer", R"("eps": 0)", "must be > 0");
  says("optimizer", R"("decay_embedding": 1)", "must be true or false");
  says("train", R"("max_steps": 1.5)", "is 1.5, must be a whole number >= 1");
  says("train", R"("max_steps": 99999999999999999999)", "must be a whole number");
  says("train", R"("max_steps": null)", "is null, must be");
  says("train", R"("precision": "fp16")", "must be one of fp32, bf16, fp64");
  says("train", R"("z_loss": 0.005)", "must be >= 0 and < 0.005");
  says("model", R"("attn_logit_softcapping": 0)", "is 0, must be > 0");
  says("model", R"("final_logit_softcapping": -30)", "must be > 0");
  says("model", R"("attn_logit_softcapping": "50")", "a number > 0, or null");
  says("model", R"("sliding_window": 0)", "must be from 1 to 2147483647");
  says("model", R"("hidden_activation": "gelu")", "must be gelu_pytorch_tanh");
  says("model", R"("layer_types": ["sliding"])", "model.layer_types[0] is \"sliding\"");
  says("model", R"("preset": "gemma_2b")", "did you mean 'gemma2_2b'?");
  says("data", R"("validation": 0)", "must be > 0 and < 1");
  says("data", R"("validation": [0.1])", "must be a text");
  says("data", R"("train": [])", "empty list");
  says("data", R"("tokenizer": "")", "must not be empty");
  says("data", R"("text_key": "a\nb")", "control characters");
  says("data", R"("tokenizer": {"a": 1})", "is an object, must be a text");
  says("dist", R"("ranks": 2)", "must be from 1 to 1");
}

TEST(Config, MessagesStayShort) {
  const std::string long_text(5000, 'x');
  EXPECT_LT(refusal("{\"train\": {\"max_steps\": \"" + long_text + "\"}}").size(), 160U);
  EXPECT_LT(refusal("{\"train\": {\"" + long_text + "\": 1}}").size(), 160U);
  EXPECT_LT(refusal("{\"" + long_text + "\": 1}").size(), 160U);
  EXPECT_LT(refusal("{}", {"train." + long_text + "=1"}).size(), 200U);
}

TEST(Config, SetReplacesValues) {
  const std::string file = R"({"model": {"preset": "gemma2_2b"}, "optimizer": {"eps": 1e-7}})";
  const RunConfig config = parsed(file,
                                  {"optimizer.eps=1e-6",
                                   "optimizer.eps=1e-5",
                                   "run.dir=2024",
                                   "data.tokenizer=\"byte\"",
                                   "data.train=[\"a\", \"b\"]",
                                   "train.precision=bf16",
                                   "model.preset=null",
                                   "model.sliding_window=null",
                                   "data.validation=dir/a=b.txt"});
  EXPECT_EQ(config.optimizer.eps, 1e-5);
  EXPECT_EQ(config.run.dir, "2024");
  EXPECT_EQ(config.data.tokenizer, "byte");
  EXPECT_EQ(config.data.train.size(), 2U);
  EXPECT_EQ(config.train.precision, Precision::kBf16);
  EXPECT_FALSE(config.model.preset.has_value());
  EXPECT_TRUE(config.model.sliding_window.has_value());
  EXPECT_EQ(std::get<1>(config.data.validation)[0], "dir/a=b.txt");
}

TEST(Config, SetErrorsNameTheArgument) {
  EXPECT_EQ(refusal("{}", {"optimizer.eps=-1"}),
            "--set optimizer.eps=-1: optimizer.eps is -1, must be > 0");
  EXPECT_EQ(refusal("{}", {"optimizer.epps=1"}),
            "--set optimizer.epps=1: no setting \"optimizer.epps\"; did you mean 'optimizer.eps'?");
  EXPECT_THAT(refusal("{}", {"optimizer.eps"}), HasSubstr("expected section.key=value"));
  EXPECT_THAT(refusal("{}", {"optimizer.eps="}), HasSubstr("is \"\", must be a number"));
  EXPECT_THAT(refusal("{}", {"run.dir=\xFF"}), HasSubstr("UTF-8"));
}

TEST(Config, ContradictionsNameBothSettings) {
  const auto says = [](const std::string& text, const char* words) {
    EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
  };
  says(R"({"train": {"global_batch": 6, "micro_batch": 4}})",
       "c.json:1:28: train.global_batch is 6, must be a multiple of train.micro_batch (4)");
  says(R"({"train": {"micro_batch": 3}})", "c.json:1:27: train.global_batch is 8");  // a default
  says(R"({"model": {"hidden_size": 8, "path": "x"}})", "the weights in model.path (\"x\") fix it");
  says(R"({"schedule": {"warmup_steps": 1000}})", "must be below schedule.total_steps (1000)");
  says(R"({"schedule": {"zero_first_step": true}})", "schedule.warmup_steps (0)");
  says(R"({"schedule": {"decay_steps": 5}})", "no effect under schedule.kind (\"cosine\")");
  says(R"({"schedule": {"kind": "wsd", "decay_steps": 950, "warmup_steps": 100}})", "leave room");
  says(R"({"schedule": {"total_steps": 9, "min_lr_ratio": 0}})", "train.max_steps (1000)");
  says(R"({"checkpoint": {"keep_every": 700}})", "multiple of checkpoint.every (500)");
  says(R"({"checkpoint": {"keep_every": 700, "every": 0}})", "multiple of checkpoint.every (0)");
  says(R"({"device": {"kind": "cuda"}, "train": {"precision": "fp64"}})", "device.kind (\"cuda\")");
  says(R"({"device": {"kind": "cpu", "index": 1}})", "no effect under device.kind");
  says(R"({"data": {"seq_len": 99}, "model": {"max_position_embeddings": 98}})",
       "must be at most model.max_position_embeddings (98)");
}

TEST(Config, EffectiveConfigReadsBackAsItself) {
  const std::string text = R"({
    "model": {"preset": "gemma2_27b", "sliding_window": null, "eos_token_id": [1, 2]},
    "data": {"train": ["a \"quoted\" é"], "validation": ["x", "y"]},
    "train": {"z_loss": 0.001}, "schedule": {"kind": "wsd", "warmup_steps": 3}
  })";
  for (const std::string& source : {std::string("{}"), text}) {
    const LoadedConfig loaded = parse_config(source, "c.json", {"optimizer.learning_rate=0.1"});
    const std::string written = effective_json(loaded.config);
    EXPECT_EQ(effective_json(parsed(written)), written);
    EXPECT_EQ(effective_json(parsed(annotated_json(loaded))), written);  // origins are comments
    EXPECT_TRUE(differences(loaded.config, parsed(written)).empty());
  }
}

TEST(Config, OriginsSayWhereAValueComesFrom) {
  const LoadedConfig loaded =
      parse_config("{\"run\": {\n\"seed\": 3}}", "c.json", {"data.seq_len=64"});
  EXPECT_EQ(loaded.prefix("run.seed"), "c.json:2:9: ");
  EXPECT_EQ(loaded.prefix("data.seq_len"), "--set data.seq_len=64: ");
  EXPECT_EQ(loaded.prefix("run.dir"), "c.json: ");
  const std::string text = annotated_json(loaded);
  EXPECT_THAT(text, HasSubstr("\"seed\": 3  // c.json:2:9\n"));
  EXPECT_THAT(text, HasSubstr("\"seq_len\": 64,  // --set data.seq_len=64\n"));
  EXPECT_THAT(text, HasSubstr("\"micro_batch\": 8,  // default: train.global_batch\n"));
}

TEST(Config, HashCoversWhatChangesResults) {
  const std::string plain = config_hash(parsed("{}"));
  EXPECT_EQ(plain.size(), 16U);
  for (const char* harmless :
       {"run.dir=x", "log.level=debug", "device.threads=3", "device.kind=cpu"}) {
    EXPECT_EQ(config_hash(parsed("{}", {harmless})), plain) << harmless;
  }
  for (const char* harmful : {"run.seed=2", "optimizer.eps=1e-7", "model.sliding_window=null"}) {
    EXPECT_NE(config_hash(parsed("{}", {harmful})), plain) << harmful;
  }
}

TEST(Config, DifferencesNamePathAndBothValues) {
  const auto found =
      differences(parsed("{}"), parsed("{}", {"train.max_steps=5", "model.head_dim=8"}));
  ASSERT_EQ(found.size(), 3U);  // total_steps follows max_steps
  EXPECT_EQ(found[0].path, "model.head_dim");
  EXPECT_EQ(found[0].before, "not given");
  EXPECT_EQ(found[1].path, "train.max_steps");
  EXPECT_EQ(found[1].before, "1000");
  EXPECT_EQ(found[1].after, "5");
  EXPECT_EQ(found[2].path, "schedule.total_steps");
}

TEST(Config, CommandsAreToldWhatIsMissing) {
  EXPECT_THROW(require_model(parse_config("{}", "c.json")), base::UsageError);
  EXPECT_NO_THROW(require_model(parse_config(R"({"model": {"path": "x"}})", "c.json")));
  EXPECT_THROW(require_training(parse_config(R"({"model": {"path": "x"}})", "c.json")),
               base::UsageError);
  EXPECT_NO_THROW(require_training(
      parse_config(R"({"model": {"path": "x"}, "data": {"train": "a"}})", "c.json")));
}

TEST(Config, MissingFileIsAUsageError) {
  EXPECT_THROW(load_config("/nonexistent/c.json"), base::UsageError);
  EXPECT_THROW(load_config("/"), base::UsageError);
}

TEST(SettingsTable, EveryRowHasASectionHelpAndADefault) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.path);
    EXPECT_EQ(find_setting(setting.path), &setting) << "given twice";
    const auto is_its = [&](const Section& section) { return section.name == setting.section(); };
    EXPECT_TRUE(std::ranges::any_of(sections(), is_its));
    EXPECT_EQ(setting.help.back(), '.');
    EXPECT_NE(setting.write(RunConfig{}).has_value(), !setting.if_absent.empty());
  }
}

// What a row declares is what the parser takes: every default satisfies its own row.
TEST(SettingsTable, DefaultsAreInRange) {
  for (const Setting& setting : settings()) {
    const auto value = setting.write(RunConfig{});
    if (!value) continue;
    const auto found = problem(setting, parse_json(*value, ""));
    EXPECT_FALSE(found) << found->text;
  }
}

TEST(SettingsTable, SchemaHoldsRangesDefaultsAndChoices) {
  const auto schema = nlohmann::json::parse(json_schema());
  const auto& properties = schema["properties"];
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(properties["optimizer"]["additionalProperties"], false);
  const auto& rate = properties["optimizer"]["properties"]["learning_rate"];
  EXPECT_EQ(rate["type"], "number");
  EXPECT_EQ(rate["exclusiveMinimum"], 0);
  EXPECT_EQ(rate["default"], 3e-4);
  const auto& precision = properties["train"]["properties"]["precision"];
  EXPECT_EQ(precision["enum"], (std::vector<std::string>{"fp32", "bf16", "fp64"}));
  std::size_t count = 0;
  for (const auto& section : properties) count += section.value("properties", schema).size();
  EXPECT_EQ(count, settings().size() + schema.size());  // "$schema" has no properties of its own
}

TEST(SettingsTable, CommittedPageIsTheGeneratedOne) {
  EXPECT_EQ(base::read_file(test::source_root() / "docs/config.md"), markdown_page())
      << "run: gemma2_train config --markdown > docs/config.md";
}

TEST(SettingsTable, HelpFitsTheTerminal) {
  const std::string text = help_text();
  for (const Setting& setting : settings()) EXPECT_THAT(text, HasSubstr(std::string(setting.path)));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
  }
}

}  // namespace
}  // namespace g2::config
