// Must catch: a signal that loses the state or gives another exit code, a run that a kill leaves
// unable to resume or that goes on with other numbers, a dry run or refused start in the way of the
// real one, commands that do not read what training wrote.
#include <gmock/gmock.h>

#include <csignal>
#include <random>

#include "base/file.h"
#include "tests/cli/program.h"
#include "tests/train/trainer_support.h"

namespace g2 {
namespace {

using test::Program;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

class TrainCommand : public train::TrainerTest {
 protected:
  TrainCommand() { test::write_text(folder_ / "run.json", train::kSmallRun); }

  // The small run, long enough to be stopped: its rate does not depend on the number of steps.
  std::vector<std::string> args(const std::string& name,
                                std::int64_t steps,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"--config", folder_ / "run.json"};
    for (const std::string& setting : {"run.dir=" + (folder_ / name).string(),
                                       "data.train=" + (folder_ / "text.jsonl").string(),
                                       "train.max_steps=" + std::to_string(steps),
                                       std::string("schedule.total_steps=1000000"),
                                       std::string("device.threads=2")}) {
      all.insert(all.end(), {"--set", setting});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::filesystem::path log_path(const std::string& name) const {
    return folder_ / (name + "/log.jsonl");
  }
  std::string state_file(const std::string& name, std::int64_t step) const {
    std::string number = std::to_string(step);
    number.insert(0, 8 - number.size(), '0');
    return base::read_file(
        folder_ / (name + "/checkpoints/step_" + number + "/state-00000-of-00001.safetensors"));
  }
  // That a stopped run, continued to `steps`, equals one that was never stopped.
  void expect_same_as_unbroken(const std::string& name, std::int64_t steps) {
    const auto rest = run_program(args(name, steps, {"--resume", "auto"}));
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    ASSERT_EQ(run_program(args("whole", steps)).exit_code, 0);
    EXPECT_TRUE(state_file(name, steps) == state_file("whole", steps));
    EXPECT_EQ(log(name), log("whole"));
  }
};

constexpr std::int64_t kForEver = 1'000'000;

TEST_F(TrainCommand, SignalsSaveTheStateAndTheRunGoesOnBitForBit) {
  std::int64_t last = 0;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    Program program(args("run", kForEver, {"--resume", "auto"}));
    program.wait_for_lines(log_path("run"), static_cast<int>(last) + 12);
    program.signal(number);
    const auto stopped = program.wait();
    EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
    EXPECT_THAT(stopped.err, AllOf(HasSubstr("stopped at step "), HasSubstr("--resume auto")));
    EXPECT_GT(log("run").back().at("step"), last);
    last = log("run").back().at("step");
  }
  expect_same_as_unbroken("run", last + 4);
}

TEST_F(TrainCommand, AKillAtAnyMomentCostsAtMostTheStepsSinceTheLastCheckpoint) {
  std::mt19937_64 rng(42);
  std::int64_t last = 0;
  for (int round = 0; round < 5; ++round) {
    Program program(args("run", kForEver, {"--resume", "auto"}));
    program.wait_for_lines(log_path("run"), static_cast<int>(last + 8 + rng() % 9));
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().exit_code, 128 + SIGKILL);
    last = log("run").back().at("step");
  }
  expect_same_as_unbroken("run", last + 2);
}

TEST_F(TrainCommand, ASecondSignalEndsAtOnce) {
  // Steps of many rows take long enough for both signals to come within one.
  Program program(args("run", kForEver, {"--set", "train.global_batch=4096"}));
  program.wait_for_lines(log_path("run"), 2);  // header, evaluation: the first step runs
  program.signal(SIGTERM);
  program.signal(SIGINT);
  EXPECT_THAT(program.wait().exit_code, testing::AnyOf(128 + SIGTERM, 128 + SIGINT));
}

TEST_F(TrainCommand, ADryRunChecksAndLeavesTheFolderFree) {
  const auto dry = run_program(args("run", 4, {"--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.err,
              AllOf(HasSubstr(" parameters, 128 tokens a step, 4 steps"),
                    HasSubstr("dry run: nothing was trained")));
  EXPECT_EQ(run_program(args("run", 4)).exit_code, 0);
}

TEST_F(TrainCommand, ARunFolderIsNotOverwrittenAndAFinishedRunIsFinished) {
  ASSERT_EQ(run_program(args("run", 4)).exit_code, 0);
  const auto again = run_program(args("run", 4));
  EXPECT_EQ(again.exit_code, 64);
  EXPECT_THAT(again.err, HasSubstr("/run already holds a run"));
  const auto resumed = run_program(args("run", 4, {"--resume", "auto"}));
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_THAT(resumed.err, HasSubstr("nothing left to train"));
}

TEST_F(TrainCommand, TheLastErrorLineIsTheCause) {
  const auto missing = run_program(args("run", 4, {"--set", "data.train=nowhere.txt"}));
  EXPECT_EQ(missing.exit_code, 64);
  EXPECT_THAT(missing.err, HasSubstr("gemma2_train: data: 'nowhere.txt' names no file"));
  const auto folder = run_program(args("run.json/x", 4));
  EXPECT_EQ(folder.exit_code, 73) << folder.err;
  const auto huge = run_program(args("run", 4, {"--set", "optimizer.learning_rate=1e30"}));
  EXPECT_EQ(huge.exit_code, 65) << huge.err;
  EXPECT_THAT(huge.err, AllOf(HasSubstr("is nan"), HasSubstr("nothing was updated")));
}

TEST_F(TrainCommand, OutputToAFileHasALineAStepAndNoBar) {
  const auto run = run_program(args("run", 3));
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("step 1/3"), HasSubstr("step 3/3"), HasSubstr("validation loss")));
  EXPECT_EQ(run.err.find('\r'), std::string::npos);
  const auto quiet =
      run_program(args("quiet", 3, {"--set", "log.every=2", "--set", "log.progress=on"}));
  EXPECT_EQ(quiet.err.find("step 1/3"), std::string::npos);
  EXPECT_NE(quiet.err.find('\r'), std::string::npos);
}

TEST_F(TrainCommand, EvalAndGenerateReadWhatTrainingWrote) {
  ASSERT_EQ(run_program(args("run", 6)).exit_code, 0);
  const std::string run_folder = folder_ / "run";
  const auto eval = run_program({"eval", run_folder});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const double logged = log("run").back().at("val_loss");
  const auto at = eval.out.find("loss ");
  ASSERT_NE(at, std::string::npos) << eval.out;
  EXPECT_NEAR(std::stod(eval.out.substr(at + 5)), logged, 2e-6);
  for (const char* rows : {"1", "7"}) {
    EXPECT_EQ(run_program({"eval", run_folder, "--rows", rows}).out.substr(0, at + 12),
              eval.out.substr(0, at + 12));
  }
  const std::vector<std::string> generate = {
      "generate", run_folder, "--prompt", "a", "--max-new-tokens", "8", "--seed", "5"};
  const auto sample = run_program(generate);
  EXPECT_EQ(sample.exit_code, 0) << sample.err;
  EXPECT_EQ(run_program(generate).out, sample.out);
}

TEST_F(TrainCommand, PlanMeasuresAndCountsEpochs) {
  auto command = args("run", 34, {"--measure", "--data"});
  command.insert(command.begin(), "plan");
  const auto plan = run_program(command);
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out,
              AllOf(HasSubstr("\n  34 steps of 128 tokens (8 x 16)"),
                    HasSubstr(" epochs\n"),
                    HasSubstr("\n  a step ")));
  EXPECT_FALSE(std::filesystem::exists(log_path("run")));
  EXPECT_EQ(run_program(args("run", 2)).exit_code, 0) << "plan was in the way of the run";
}

}  // namespace
}  // namespace g2
