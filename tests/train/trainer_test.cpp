// Must catch: results that depend on threads or on how a step is cut, a mean of means, an update
// with a bad gradient, bad weights saved over good ones, z-loss inside the loss, a full disk that
// ends a run, a stop that is not heeded, rates that tick with micro-batches.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "base/error.h"
#include "tests/train/trainer_support.h"

namespace g2::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two ways of cutting one sum of some hundred terms differ by a few roundings.
constexpr double kFp32Rounding = 2e-6;
constexpr double kFp64Rounding = 1e-13;

TEST_F(TrainerTest, TheThreadCountChangesNoBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    const std::vector<std::string> set = {std::string("train.precision=") + precision};
    const RunEnd one = run(config(std::string(precision) + "1", set), {.threads = 1});
    for (const int threads : {2, 5}) {
      const std::string name = precision + std::to_string(threads);
      EXPECT_EQ(run(config(name, set), {.threads = threads}).state, one.state) << name;
      EXPECT_EQ(log(name), log(std::string(precision) + "1"));
    }
  }
}

// Packed rows with padding have unlike counts of targets: a mean of micro-batch means would differ.
TEST_F(TrainerTest, AStepDoesNotDependOnHowItIsCut) {
  for (const auto& [precision, limit] :
       {std::pair("fp32", kFp32Rounding), std::pair("fp64", kFp64Rounding)}) {
    const auto cut = [&](int rows) {
      return run(config(precision + std::to_string(rows),
                        {std::string("train.precision=") + precision,
                         "train.micro_batch=" + std::to_string(rows)}));
    };
    const RunEnd whole = cut(8);
    EXPECT_NE(whole.steps[0].valid_targets % 8, 0) << "the rows are too even for this test";
    for (const int rows : {4, 2, 1}) {
      SCOPED_TRACE(std::string(precision) + ", rows at a time " + std::to_string(rows));
      const RunEnd parts = cut(rows);
      ASSERT_EQ(parts.steps.size(), 9U);
      for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(parts.steps[i].valid_targets, whole.steps[i].valid_targets);
        EXPECT_EQ(parts.steps[i].tokens, whole.steps[i].tokens);
        EXPECT_EQ(parts.steps[i].learning_rate, whole.steps[i].learning_rate);
        // Differences grow with the steps, about as fast as the steps' number.
        const double allowed = limit * static_cast<double>(i + 1);
        EXPECT_NEAR(parts.steps[i].loss / whole.steps[i].loss, 1, allowed) << "step " << i + 1;
        EXPECT_NEAR(parts.steps[i].grad_norm / whole.steps[i].grad_norm, 1, 20 * allowed);
      }
      for (std::size_t i = 0; i < whole.evaluations.size(); ++i) {
        EXPECT_EQ(parts.evaluations[i].val_tokens, whole.evaluations[i].val_tokens);
        EXPECT_NEAR(parts.evaluations[i].val_loss / whole.evaluations[i].val_loss, 1, 20 * limit);
      }
    }
  }
}

// The loss of the untrained model, token by token: what step 1 must log.
TEST_F(TrainerTest, TheLoggedLossIsTheTokenMeanOfTheWholeStep) {
  const RunEnd end = run(config("run", {"train.precision=fp64"}));
  RunParts parts(config("other", {"train.precision=fp64"}), 1);
  model::Model model(parts.model, parts.device, parts.ops, model_options(parts.config));
  model.initialise(3);
  double sum = 0;
  std::int64_t count = 0;
  data::Batch row;
  for (std::int64_t sample = 0; sample < 8; ++sample) {
    parts.dataset.train->fill(sample, 1, row);
    model.begin_sums();
    model.forward_loss({.rows = 1,
                        .seq_len = 16,
                        .ids = row.ids,
                        .targets = row.targets,
                        .positions = row.positions,
                        .lo = row.lo});
    sum += model.read_sums().loss;
    count += row.valid_targets;
  }
  EXPECT_EQ(end.steps[0].valid_targets, count);
  EXPECT_NEAR(end.steps[0].loss, sum / static_cast<double>(count), kFp64Rounding * 10);
}

TEST_F(TrainerTest, TheLogAddsUp) {
  const RunEnd end = run(config("run"));
  ASSERT_EQ(end.steps.size(), 9U);
  for (const StepResult& r : end.steps) {
    EXPECT_EQ(r.tokens, r.step * 8 * 16);  // all micro-batches, padding included
    EXPECT_LE(r.valid_targets, 8 * 16);
    EXPECT_NEAR(r.tokens_per_s * r.ms / 1e3, 8 * 16, 1e-6);
    EXPECT_FALSE(r.mfu) << "a processor's peak is not known";
    EXPECT_GT(*r.mem_gib, 0);
  }
  EXPECT_LT(end.steps[0].valid_targets, 8 * 16) << "padding was counted";
  std::vector<std::int64_t> evaluated;
  for (const EvalResult& r : end.evaluations) evaluated.push_back(r.step);
  EXPECT_THAT(evaluated, ElementsAre(0, 3, 6, 9));
  EXPECT_LT(end.evaluations.back().val_loss, end.evaluations.front().val_loss);
}

TEST_F(TrainerTest, ZLossIsReportedApart) {
  const RunEnd without = run(config("without"));
  const RunEnd with = run(config("with", {"train.z_loss=0.004"}));
  EXPECT_EQ(with.steps[0].loss, without.steps[0].loss);
  EXPECT_GT(with.steps[0].z_loss, 0);
  EXPECT_EQ(without.steps[0].z_loss, 0);
  EXPECT_NE(with.steps[1].loss, without.steps[1].loss) << "z-loss had no gradient";
  EXPECT_EQ(with.evaluations[0].val_loss, without.evaluations[0].val_loss);
}

class NonFinite : public TrainerTest {
 protected:
  static void set_weight(Trainer& trainer, const char* name, std::int64_t index, float value) {
    const model::Parameter& p = trainer.model().table().at(name);
    trainer.model().master_view(p).as<float>()[index] = value;
  }
  // A finite weight that makes the layer's output infinite.
  static void overflow(Trainer& trainer) {
    const model::Parameter& p = trainer.model().table().at("model.layers.1.mlp.down_proj.weight");
    float* values = trainer.model().master_view(p).as<float>();
    std::fill(values, values + p.count, std::numeric_limits<float>::max());
  }
  std::string error_of(const config::RunConfig& config,
                       const std::function<void(Trainer&)>& spoil) {
    try {
      run(config, {.before = spoil});
    } catch (const base::NumericError& e) {
      EXPECT_EQ(e.exit_code(), base::kData);
      return e.what();
    }
    return "no error";
  }
};

TEST_F(NonFinite, AWeightIsNamedWithTensorAndIndex) {
  const auto spoil = [](Trainer& trainer) {
    set_weight(trainer, "model.layers.1.self_attn.o_proj.weight", 37, std::nanf(""));
  };
  const std::string message = error_of(config("run"), spoil);
  EXPECT_THAT(message,
              AllOf(HasSubstr("step 1: the loss is nan"),
                    HasSubstr("the weight model.layers.1.self_attn.o_proj.weight[37] is nan"),
                    HasSubstr("(samples ")));
  EXPECT_THAT(checkpoints("run"), IsEmpty());
  EXPECT_EQ(log("run").size(), 1U) << "only the evaluation before step 1";
  EXPECT_TRUE(log("run")[0].at("val_loss").is_null());
  // Skipping cannot help against a bad weight.
  EXPECT_EQ(error_of(config("skip", {"train.on_nonfinite=skip"}), spoil), message);
}

TEST_F(NonFinite, AGradientIsNamedAndNothingIsUpdated) {
  const std::string message = error_of(config("run"), overflow);
  EXPECT_THAT(message, AllOf(HasSubstr("step 1: "), HasSubstr("the gradient of model.")));
  EXPECT_THAT(checkpoints("run"), IsEmpty());
}

TEST_F(NonFinite, GoodCheckpointsStayWhenALaterStepGoesWrong) {
  Trainer* running = nullptr;
  const auto spoil_at_5 = [&](const StepResult& r) {
    if (r.step == 5) overflow(*running);
  };
  EXPECT_THROW(
      run(config("run"),
          {.before = [&](Trainer& trainer) { running = &trainer; }, .on_step = spoil_at_5}),
      base::NumericError);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step_00000003", "step_00000004"));
  EXPECT_EQ(log("run").back().at("step"), 5);
  const RunEnd rest = run(config("run"), {.resume = automatic()});
  EXPECT_EQ(rest.state, run(config("whole")).state);
}

TEST_F(NonFinite, SkippedStepsAreCountedAndChangeNoWeight) {
  std::vector<std::byte> before;
  const auto spoil = [&](Trainer& trainer) {
    overflow(trainer);
    before = state_of(trainer);
  };
  const RunEnd end =
      run(config("run", {"train.on_nonfinite=skip", "train.max_steps=3"}), {.before = spoil});
  EXPECT_EQ(end.outcome, RunOutcome::kFinished);
  EXPECT_EQ(end.state, before);
  EXPECT_EQ(end.steps.back().skipped_steps, 3);
  const nlohmann::json line = log("run").at(1);
  EXPECT_THAT(line.at("skipped").get<std::string>(), HasSubstr("the gradient of model."));
  EXPECT_TRUE(line.at("loss").is_null());
}

// The first update moves a weight by the whole rate, whatever its gradient. After a skipped step a
// bias correction that counts steps instead of updates would move it by 0.73 of that.
TEST_F(NonFinite, ASkippedStepDoesNotCountForTheBiasCorrection) {
  Trainer* running = nullptr;
  std::vector<float> good;
  const auto weights = [&] { return running->model().master(); };
  const auto spoil = [&](Trainer& trainer) {
    running = &trainer;
    good.assign(weights().as<float>(), weights().as<float>() + weights().size());
    overflow(trainer);
  };
  double largest = 0;
  const auto restore_then_measure = [&](const StepResult& r) {
    for (std::size_t i = 0; i < good.size(); ++i) {
      float& weight = weights().as<float>()[i];
      if (r.step == 1) weight = good[i];
      largest = std::max(largest, std::abs(static_cast<double>(weight) - good[i]));
    }
  };
  const auto skipping = config("run",
                               {"train.on_nonfinite=skip",
                                "train.max_steps=2",
                                "schedule.warmup_steps=0",
                                "schedule.kind=constant",
                                "optimizer.weight_decay=0"});
  run(skipping, {.before = spoil, .on_step = restore_then_measure});
  EXPECT_NEAR(largest / 1e-2, 1, 1e-3);
}

TEST_F(TrainerTest, AStopIsHeededAtOnceInAnEvaluation) {
  const RunEnd end = run(config("run"), {.stop_after = 3});  // an evaluation follows step 3
  EXPECT_EQ(end.outcome, RunOutcome::kInterrupted);
  EXPECT_EQ(end.evaluations.size(), 1U);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step_00000002", "step_00000003"));
}

TEST_F(TrainerTest, AStopBeforeTheFirstStepSavesNothingAndIsNoError) {
  const RunEnd end =
      run(config("run"), {.before = [](Trainer&) { base::set_stop_requested(true); }});
  EXPECT_EQ(end.outcome, RunOutcome::kInterrupted);
  EXPECT_THAT(end.steps, IsEmpty());
  EXPECT_EQ(run(config("run"), {.resume = automatic()}).outcome, RunOutcome::kFinished);
}

// Files above the limit cannot be written, as on a full disk; the log still can.
class FullDisk : public TrainerTest {
 protected:
  FullDisk() {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FullDisk() override {
    limit(before_.rlim_cur);
    std::signal(SIGXFSZ, handler_);
  }
  void limit(rlim_t bytes) const {
    const rlimit now{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  static constexpr rlim_t kLessThanACheckpoint = 20000;

  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST_F(FullDisk, TrainingGoesOnAndTheNextSaveTriesAgain) {
  const RunEnd end =
      run(config("run", {"train.eval_every=0"}), {.on_step = [&](const StepResult& r) {
            if (r.step == 3) limit(kLessThanACheckpoint);
            if (r.step == 7) limit(before_.rlim_cur);
          }});
  EXPECT_EQ(end.outcome, RunOutcome::kFinished);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step_00000008", "step_00000009"));
}

TEST_F(FullDisk, TheLastSaveMustSucceed) {
  const auto fill = [&](const StepResult& r) {
    if (r.step == 3) limit(kLessThanACheckpoint);
  };
  EXPECT_THROW(run(config("run", {"train.eval_every=0"}), {.on_step = fill}), base::IoError);
  limit(before_.rlim_cur);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step_00000002"));
  EXPECT_EQ(run(config("run", {"train.eval_every=0"}), {.resume = automatic()}).steps.size(), 7U);
}

}  // namespace
}  // namespace g2::train
