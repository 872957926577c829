// Must catch: samples repeated or skipped, moments, step count, rate or best result lost, an
// evaluation left out or made twice, a log line that stands twice, changed settings let through.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/train/trainer_support.h"

namespace g2::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Resume : public TrainerTest {
 protected:
  // The one line of the error that the call ends with.
  template <typename ErrorType>
  std::string error_of(const config::RunConfig& config, const ResumeOptions& resume) {
    try {
      run(config, {.resume = resume});
    } catch (const ErrorType& e) {
      return e.what();
    }
    return "no error";
  }
};

// An epoch has 34 rows, so nine steps of eight pass two epoch ends and step 3 stops inside one.
TEST_F(Resume, IsBitIdenticalAtEveryStep) {
  for (const char* packing : {"documents", "stream"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(std::string(packing) + " " + precision);
      const std::vector<std::string> set = {std::string("data.packing=") + packing,
                                            std::string("train.precision=") + precision};
      const std::string name = std::string(packing) + precision;
      const RunEnd whole = run(config(name, set));
      for (const std::int64_t k : {1, 3, 4, 8}) {
        SCOPED_TRACE("stopped after step " + std::to_string(k));
        const std::string part = name + std::to_string(k);
        const RunEnd first = run(config(part, set), {.stop_after = k});
        EXPECT_EQ(first.outcome, RunOutcome::kInterrupted);
        EXPECT_EQ(first.steps.back().step, k);
        const RunEnd rest = run(config(part, set), {.resume = automatic()});
        EXPECT_EQ(rest.outcome, RunOutcome::kFinished);
        EXPECT_EQ(rest.steps.front().step, k + 1);
        EXPECT_EQ(rest.state, whole.state);
        EXPECT_EQ(log(part), log(name));
      }
    }
  }
}

TEST_F(Resume, ManyStopsAndAnotherThreadCountChangeNothing) {
  const RunEnd whole = run(config("whole"), {.threads = 1});
  RunEnd end;
  for (std::int64_t k = 1; k <= 9; ++k) {
    end = run(config("parts"),
              {.resume = automatic(), .threads = static_cast<int>(1 + k % 3), .stop_after = k});
  }
  end = run(config("parts"), {.resume = automatic()});
  EXPECT_EQ(end.state, whole.state);
  EXPECT_EQ(log("parts"), log("whole"));
}

// Killed after step 8: the newest checkpoint is of step 6, the log two steps ahead of it.
TEST_F(Resume, AfterAKillTheLogIsCutAndEachStepStandsOnce) {
  const RunEnd whole = run(config("whole"));
  struct Killed {};
  EXPECT_THROW(run(config("killed", {"checkpoint.every=6"}),
                   {.on_step =
                        [](const StepResult& r) {
                          if (r.step == 8) throw Killed();
                        }}),
               Killed);
  EXPECT_EQ(log("killed").back().at("step"), 8);
  const RunEnd rest = run(config("killed", {"checkpoint.every=6"}), {.resume = automatic()});
  EXPECT_EQ(rest.steps.front().step, 7);
  EXPECT_EQ(rest.state, whole.state);
  EXPECT_EQ(log("killed"), log("whole"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "killed/log.jsonl.abandoned-1"));
}

TEST_F(Resume, FromAnOlderCheckpointLeavesTheNewerBranch) {
  const auto keep_all = {std::string("checkpoint.keep_last=9")};
  const RunEnd whole = run(config("run", keep_all));
  const auto log_before = log("run");
  const RunEnd again =
      run(config("run", keep_all), {.resume = from(folder_ / "run/checkpoints/step_00000004")});
  EXPECT_EQ(again.steps.front().step, 5);
  EXPECT_EQ(again.state, whole.state);
  EXPECT_EQ(log("run"), log_before);
  EXPECT_EQ(run(config("run", keep_all), {.resume = automatic()}).outcome,
            RunOutcome::kAlreadyFinished);
}

TEST_F(Resume, AFinishedRunHasNothingLeftAndIsLeftAlone) {
  run(config("run"));
  const std::string before = base::read_file(folder_ / "run/log.jsonl");
  const RunEnd again = run(config("run"), {.resume = automatic()});
  EXPECT_EQ(again.outcome, RunOutcome::kAlreadyFinished);
  EXPECT_TRUE(again.steps.empty());
  EXPECT_EQ(base::read_file(folder_ / "run/log.jsonl"), before);
}

TEST_F(Resume, AFinishedRunGoesOnWithMoreStepsOfTheSameSchedule) {
  const auto set = [](int steps) {
    return std::vector<std::string>{"train.max_steps=" + std::to_string(steps),
                                    "schedule.total_steps=20"};
  };
  const RunEnd whole = run(config("whole", set(9)));
  run(config("run", set(5)));
  const RunEnd rest = run(config("run", set(9)), {.resume = automatic()});
  EXPECT_EQ(rest.outcome, RunOutcome::kFinished);
  EXPECT_EQ(rest.state, whole.state);
}

TEST_F(Resume, AutoStartsAnEmptyFolderAndOneKilledBeforeItsFirstCheckpoint) {
  struct Killed {};
  EXPECT_THROW(run(config("run"),
                   {.resume = automatic(), .on_step = [](const StepResult&) { throw Killed(); }}),
               Killed);
  const RunEnd end = run(config("run"), {.resume = automatic()});
  EXPECT_EQ(end.outcome, RunOutcome::kFinished);
  EXPECT_EQ(end.steps.size(), 9U);
  EXPECT_EQ(log("run").front().at("step"), 0);
}

TEST_F(Resume, AFolderThatHoldsARunIsNotOverwritten) {
  run(config("run"), {.stop_after = 2});
  const std::string before = base::read_file(folder_ / "run/log.jsonl");
  EXPECT_THAT(error_of<base::UsageError>(config("run"), {}),
              AllOf(HasSubstr("/run already holds a run"), HasSubstr("--resume auto")));
  run(config("other"), {.stop_after = 1});
  EXPECT_THAT(error_of<base::UsageError>(config("run"), from(folder_ / "other")),
              HasSubstr("/run already holds a run"));
  EXPECT_EQ(base::read_file(folder_ / "run/log.jsonl"), before);
}

TEST_F(Resume, AStartThatNeverRunsLeavesTheFolderFree) {
  {
    RunParts parts(config("run"), 1);
    const Trainer trainer(parts.parts(), {});
  }
  EXPECT_EQ(run(config("run")).outcome, RunOutcome::kFinished);
}

TEST_F(Resume, AnotherRunBeginsFromACheckpointWithALogOfItsOwn) {
  const RunEnd whole = run(config("old"));
  const RunEnd rest = run(config("new"), {.resume = from(folder_ / "old")});
  EXPECT_EQ(rest.outcome, RunOutcome::kFinished);
  run(config("third"), {.stop_after = 4});
  const RunEnd end = run(config("fourth"), {.resume = from(folder_ / "third")});
  EXPECT_EQ(end.state, whole.state);
  EXPECT_EQ(log("fourth").front().at("step"), 5);
  EXPECT_THAT(error_of<base::IoError>(config("fifth"), from(folder_ / "none")),
              HasSubstr("/none: is not there"));
}

TEST_F(Resume, ChangedSettingsAreNamedAndNeedAFlag) {
  run(config("run"), {.stop_after = 2});
  const auto seed = config("run", {"run.seed=4"});
  EXPECT_THAT(error_of<base::UsageError>(seed, automatic()),
              AllOf(HasSubstr("run.seed 3 -> 4"), HasSubstr("--allow-change")));
  const auto longer = config("run", {"train.max_steps=30"});
  EXPECT_THAT(error_of<base::UsageError>(longer, automatic()),
              AllOf(HasSubstr("schedule.total_steps 9 -> 30"), HasSubstr("rate of step 4: ")));
  const auto model = config("run", {"model.hidden_size=32"});
  EXPECT_THAT(error_of<base::UsageError>(model, automatic(true)), HasSubstr("other sizes"));
  EXPECT_EQ(log("run").back().at("step"), 2) << "a refused start changed the log";

  const RunEnd end = run(longer, {.resume = automatic(true), .stop_after = 4});
  EXPECT_EQ(end.steps.front().step, 3);
}

TEST_F(Resume, ChangedDataIsFound) {
  run(config("run"), {.stop_after = 2});
  write_corpus(folder_ / "text.jsonl", 41);
  EXPECT_THAT(error_of<base::UsageError>(config("run"), automatic()), HasSubstr("the data's hash"));
}

TEST_F(Resume, SettingsThatChangeNoResultMayDiffer) {
  const RunEnd whole = run(config("whole"));
  run(config("run"), {.stop_after = 2});
  const auto other = config("run", {"checkpoint.every=3", "log.every=5", "device.threads=1"});
  EXPECT_EQ(run(other, {.resume = automatic()}).state, whole.state);
}

// The best result is part of the state: a resumed run must not take a worse one for the best.
TEST_F(Resume, KeepsTheBestCheckpointOfBeforeTheStop) {
  const auto one = config("run", {"checkpoint.keep_last=1"});
  const RunEnd first = run(one, {.stop_after = 7});
  const auto spoil = [](Trainer& trainer) { trainer.model().initialise(99); };
  const RunEnd rest = run(one, {.resume = automatic(), .before = spoil});
  ASSERT_GT(rest.evaluations.back().val_loss, first.evaluations.back().val_loss);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step_00000006", "step_00000009"));
}

}  // namespace
}  // namespace g2::train
