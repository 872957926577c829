// Must catch: a first step that learns nothing unless asked, division by zero without warm-up, a
// peak or floor that is missed by a step, a rate that moves past the end, ratios of the wrong rate.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace g2::train {
namespace {

using config::ScheduleKind;
using config::ScheduleSettings;

constexpr double kPeak = 3e-3;
constexpr double kRounding = 1e-15;  // a few units in the last place of a rate near 3e-3

ScheduleSettings schedule(ScheduleKind kind, std::int64_t warmup, std::int64_t total) {
  ScheduleSettings s;
  s.kind = kind;
  s.warmup_steps = warmup;
  s.total_steps = total;
  s.min_lr_ratio = 0.1;
  s.decay_steps = 4;
  return s;
}

constexpr ScheduleKind kKinds[] = {
    ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd};

// Steps 1, 2, ... of a schedule.
std::vector<double> rates(const ScheduleSettings& s, std::int64_t steps) {
  std::vector<double> values;
  for (std::int64_t step = 1; step <= steps; ++step) {
    values.push_back(learning_rate(s, kPeak, step));
  }
  return values;
}

void expect_rates(const std::vector<double>& got, const std::vector<double>& shares_of_peak) {
  ASSERT_EQ(got.size(), shares_of_peak.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], kPeak * shares_of_peak[i], kRounding) << "step " << i + 1;
  }
}

TEST(Schedule, WarmUpLearnsFromTheFirstStepAndReachesThePeak) {
  for (const ScheduleKind kind : kKinds) {
    expect_rates(rates(schedule(kind, 4, 100), 5), {0.25, 0.5, 0.75, 1, 1});
  }
}

TEST(Schedule, WithoutWarmUpTheFirstStepHasThePeak) {
  for (const ScheduleKind kind : kKinds) {
    EXPECT_EQ(learning_rate(schedule(kind, 0, 100), kPeak, 1), kPeak);
    EXPECT_EQ(learning_rate(schedule(kind, 1, 100), kPeak, 1), kPeak);
  }
}

TEST(Schedule, LinearFallsByEqualStepsToTheFloor) {
  // x = (step - 1 - 2) / 8, share 1 - 0.9 x
  expect_rates(rates(schedule(ScheduleKind::kLinear, 2, 10), 12),
               {0.5, 1, 1, 0.8875, 0.775, 0.6625, 0.55, 0.4375, 0.325, 0.2125, 0.1, 0.1});
}

TEST(Schedule, CosineHasItsClosedForm) {
  const ScheduleSettings s = schedule(ScheduleKind::kCosine, 3, 103);
  for (std::int64_t step = 4; step <= 104; ++step) {
    const double x = static_cast<double>(step - 4) / 100;
    const double want = kPeak * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * x)));
    EXPECT_NEAR(learning_rate(s, kPeak, step), want, kRounding) << "step " << step;
  }
  EXPECT_NEAR(learning_rate(s, kPeak, 54), kPeak * 0.55, kRounding);  // half way
  EXPECT_NEAR(learning_rate(s, kPeak, 5000), kPeak * 0.1, kRounding);
}

TEST(Schedule, WsdIsFlatUntilItsLastSteps) {
  expect_rates(rates(schedule(ScheduleKind::kWsd, 2, 10), 12),
               {0.5, 1, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1});
}

TEST(Schedule, ConstantStaysAndAFloorOfOneIsConstant) {
  expect_rates(rates(schedule(ScheduleKind::kConstant, 0, 3), 5), {1, 1, 1, 1, 1});
  for (const ScheduleKind kind : kKinds) {
    ScheduleSettings s = schedule(kind, 0, 5);
    s.min_lr_ratio = 1;
    expect_rates(rates(s, 7), {1, 1, 1, 1, 1, 1, 1});
  }
}

// get_cosine_schedule_with_warmup(warm-up 3, 9 steps) and the linear one, as an optimizer sees
// them: the rate used by step s is lambda(s - 1), so the first step learns nothing.
TEST(Schedule, ZeroFirstStepIsTheScheduleOfTransformers) {
  ScheduleSettings cosine = schedule(ScheduleKind::kCosine, 3, 9);
  cosine.zero_first_step = true;
  cosine.min_lr_ratio = 0;
  const double a = (1 + std::cos(std::numbers::pi / 6)) / 2;
  expect_rates(rates(cosine, 10), {0, 1. / 3, 2. / 3, 1, a, 0.75, 0.5, 0.25, 1 - a, 0});
  ScheduleSettings linear = cosine;
  linear.kind = ScheduleKind::kLinear;
  expect_rates(rates(linear, 10),
               {0, 1. / 3, 2. / 3, 1, 5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6, 0});
}

TEST(Schedule, OneStepAfterTheWarmUpIsEnough) {
  for (const ScheduleKind kind : kKinds) {
    ScheduleSettings s = schedule(kind, 5, 6);
    s.decay_steps = 1;
    expect_rates(rates(s, 6), {0.2, 0.4, 0.6, 0.8, 1, 1});
    EXPECT_NEAR(learning_rate(s, kPeak, 7),
                kind == ScheduleKind::kConstant ? kPeak : 0.1 * kPeak,
                kRounding);
  }
}

}  // namespace
}  // namespace g2::train
