// Must catch: an exit code other than the documented one, a message of several lines or none, a
// message that does not say what to do, output that is not what it claims to be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/support.h"

namespace g2 {
namespace {

using test::run_program;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

void expect_usage_error(const std::vector<std::string>& args, const std::string& message) {
  SCOPED_TRACE(testing::PrintToString(args));
  const auto run = run_program(args);
  EXPECT_EQ(run.exit_code, 64);
  EXPECT_EQ(run.err, "gemma2_train: " + message + "\n");
  EXPECT_EQ(run.out, "");
}

TEST(Command, HelpListsEachCommand) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{}, {"--help"}, {"-h"}}) {
    const auto run = run_program(args);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_THAT(run.out, AllOf(HasSubstr("\n  config "), HasSubstr("\n  version ")));
    EXPECT_EQ(run.err, "");
  }
}

TEST(Command, VersionSaysWhatIsBuiltInAndWhatIsNot) {
  const auto run = run_program({"--version"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, StartsWith("gemma2_train " G2_VERSION " ("));
  for (const char* part : {"compiler", "CUDA", "OpenBLAS", "SentencePiece", "MPI", "NCCL"}) {
    EXPECT_THAT(run.out, HasSubstr(std::string("\n  ") + part + " "));
  }
  EXPECT_EQ(run_program({"version"}).out, run.out);
}

TEST(Command, WrongCommandLinesAreOneLineAndExit64) {
  expect_usage_error({"confg"},
                     "no command 'confg'; did you mean 'config'?; see gemma2_train --help");
  expect_usage_error(
      {"config", "--orign"},
      "no option '--orign'; did you mean '--origin'?; see gemma2_train config --help");
  expect_usage_error({"config", "extra"},
                     "unexpected argument 'extra'; see gemma2_train config --help");
  expect_usage_error(
      {"train", "--confg", "a.json"},
      "no option '--confg'; did you mean '--config'?; see gemma2_train train --help");
  expect_usage_error({"--set", "run.seed=1"},
                     "--config is required; see gemma2_train train --help");
  expect_usage_error({"config", "--schema", "--markdown"},
                     "--schema excludes --markdown; see gemma2_train config --help");
  expect_usage_error({"config", "--set"},
                     "--set: 1 required TEXT missing; see gemma2_train config --help");
}

TEST(ConfigCommand, PrintsTheDefaultsWithoutAFile) {
  const auto run = run_program({"config"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(run.out).at("data").at("seq_len"), 256);
}

TEST(ConfigCommand, PrintsAFileWithItsOverridesAndTheirOrigins) {
  const test::TempFolder folder;
  const std::string file = folder / "run.json";
  test::write_text(file, "{\n  // a comment\n  \"train\": {\"max_steps\": 7}\n}\n");
  const std::vector<std::string> args = {
      "config", "--config", file, "--set", "run.seed=3", "--set", R"(data.train=["a", "b"])"};
  const auto plain = run_program(args);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const auto json = nlohmann::json::parse(plain.out);
  EXPECT_EQ(json.at("train").at("max_steps"), 7);
  EXPECT_EQ(json.at("run").at("seed"), 3);
  EXPECT_EQ(json.at("data").at("train"), (std::vector<std::string>{"a", "b"}));

  auto with_origin = args;
  with_origin.emplace_back("--origin");
  const auto origin = run_program(with_origin);
  EXPECT_EQ(nlohmann::json::parse(origin.out, nullptr, true, true), json);
  EXPECT_THAT(origin.out, HasSubstr("\"max_steps\": 7,  // " + file + ":3:"));
  EXPECT_THAT(origin.out, HasSubstr("\"seed\": 3  // --set run.seed=3"));
}

TEST(ConfigCommand, AnErrorNamesFileLineAndColumn) {
  const test::TempFolder folder;
  const std::string file = folder / "run.json";
  test::write_text(file, "{\n  \"optimizer\": {\"learning_rate\": -1e-5}\n}\n");
  expect_usage_error({"config", "--config", file},
                     file + ":2:34: optimizer.learning_rate is -1e-5, must be > 0");
  expect_usage_error({"config", "--set", "train.max_steps=0"},
                     "--set train.max_steps=0: train.max_steps is 0, must be >= 1");
}

TEST(ConfigCommand, SchemaIsJsonAndTheReferencesNameEachSetting) {
  const auto schema = nlohmann::json::parse(run_program({"config", "--schema"}).out);
  EXPECT_TRUE(schema.at("properties").at("optimizer").at("properties").contains("learning_rate"));
  const std::string help = run_program({"config", "--help-config"}).out;
  EXPECT_THAT(help, HasSubstr("optimizer.learning_rate"));
  EXPECT_EQ(run_program({"--help-config"}).out, help);
  EXPECT_THAT(run_program({"config", "--markdown"}).out, HasSubstr("learning_rate"));
}

TEST(ConfigCommand, AFullDiskIsAnIoError) {
  const auto run = run_program({"config"}, "/dev/full");
  EXPECT_EQ(run.exit_code, 74);
  EXPECT_EQ(run.err, "gemma2_train: standard output: No space left on device\n");
}

}  // namespace
}  // namespace g2
