// Must catch: lines kept in a buffer, digits lost on the way, NaN written as no JSON, a step that
// stands twice after a resume, lines thrown away instead of moved, a torn last line in the way.
#include "train/metrics_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/support.h"

namespace g2::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<json> lines(const std::filesystem::path& path) {
  std::vector<json> parsed;
  std::istringstream text(base::read_file(path));
  for (std::string line; std::getline(text, line);) parsed.push_back(json::parse(line));
  return parsed;
}

StepResult step_result(std::int64_t step) {
  StepResult r;
  r.step = step;
  r.loss = 1.0 / static_cast<double>(step + 2);
  r.grad_norm = 0.5;
  r.tokens = step * 100;
  return r;
}

std::vector<std::int64_t> steps_of(const std::vector<json>& log) {
  std::vector<std::int64_t> steps;
  for (const json& line : log) {
    if (line.contains("loss")) steps.push_back(line.at("step"));
  }
  return steps;
}

class MetricsLogTest : public testing::Test {
 protected:
  void write_steps(MetricsLog& log, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) log.step(step_result(step));
  }

  test::TempFolder folder_;
  std::filesystem::path path_ = folder_ / "log.jsonl";
};

TEST_F(MetricsLogTest, EachLineIsThereAtOnce) {
  MetricsLog log(path_, std::nullopt);
  log.header({{"version", "1"}});
  EXPECT_EQ(lines(path_).at(0), (json{{"type", "header"}, {"version", "1"}}));
  log.step(step_result(1));
  EXPECT_EQ(lines(path_).size(), 2U);
  log.evaluation({.step = 1, .val_loss = 2.5, .val_tokens = 7, .val_bpb = 3.25});
  EXPECT_EQ(lines(path_).at(2),
            (json{{"step", 1}, {"val_loss", 2.5}, {"val_tokens", 7}, {"val_bpb", 3.25}}));
}

TEST_F(MetricsLogTest, NumbersReadBackToTheSameBits) {
  StepResult r = step_result(1);
  r.loss = std::nextafter(2.0, 3.0);
  r.grad_norm = 1.0 / 3;
  r.learning_rate = std::numeric_limits<double>::denorm_min();
  r.z_loss = 0.1F;
  MetricsLog(path_, std::nullopt).step(r);
  const json line = lines(path_).at(0);
  EXPECT_EQ(line.at("loss").get<double>(), r.loss);
  EXPECT_EQ(line.at("grad_norm").get<double>(), r.grad_norm);
  EXPECT_EQ(line.at("lr").get<double>(), r.learning_rate);
  EXPECT_EQ(line.at("z_loss").get<double>(), r.z_loss);
}

TEST_F(MetricsLogTest, WhatIsNotFiniteIsNullAndWhatIsNotKnownIsLeftOut) {
  StepResult r = step_result(1);
  r.loss = std::nan("");
  r.grad_norm = std::numeric_limits<double>::infinity();
  r.skipped = "no valid target";
  MetricsLog(path_, std::nullopt).step(r);
  const json line = lines(path_).at(0);
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_EQ(line.at("skipped"), "no valid target");
  EXPECT_FALSE(line.contains("mfu"));
  EXPECT_FALSE(line.contains("mem_gib"));
  EXPECT_FALSE(line.contains("z_loss"));
}

TEST_F(MetricsLogTest, AResumeCutsLaterStepsAndKeepsThemBeside) {
  {
    MetricsLog log(path_, std::nullopt);
    log.header(ordered_json::object());
    write_steps(log, 1, 5);
    log.evaluation({.step = 5, .val_loss = 1, .val_tokens = 1, .val_bpb = {}});
  }
  MetricsLog log(path_, 3);
  write_steps(log, 4, 6);
  EXPECT_EQ(steps_of(lines(path_)), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  const std::vector<json> moved = lines(folder_ / "log.jsonl.abandoned-1");
  EXPECT_EQ(steps_of(moved), (std::vector<std::int64_t>{4, 5}));
  EXPECT_TRUE(moved.back().contains("val_loss"));
}

TEST_F(MetricsLogTest, EachCutGetsAFileOfItsOwn) {
  for (int run = 1; run <= 3; ++run) {
    MetricsLog log(path_, 0);
    write_steps(log, 1, 2);
  }
  EXPECT_EQ(steps_of(lines(folder_ / "log.jsonl.abandoned-1")).size(), 2U);
  EXPECT_EQ(steps_of(lines(folder_ / "log.jsonl.abandoned-2")).size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.jsonl.abandoned-3"));
}

TEST_F(MetricsLogTest, AResumeAtTheLastLineMovesNothing) {
  {
    MetricsLog log(path_, std::nullopt);
    write_steps(log, 1, 3);
  }
  MetricsLog log(path_, 3);
  write_steps(log, 4, 4);
  EXPECT_EQ(steps_of(lines(path_)), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "log.jsonl.abandoned-1"));
}

TEST_F(MetricsLogTest, ATornLastLineOfAKilledRunIsMovedAway) {
  test::write_text(path_, "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"lo");
  MetricsLog log(path_, 2);
  write_steps(log, 3, 3);
  EXPECT_EQ(steps_of(lines(path_)), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(base::read_file(folder_ / "log.jsonl.abandoned-1"), "{\"step\":2,\"lo");
}

TEST_F(MetricsLogTest, AFreshStartMovesAnOldLogAway) {
  {
    MetricsLog log(path_, std::nullopt);
    log.header(ordered_json::object());
    write_steps(log, 1, 2);
  }
  MetricsLog log(path_, std::nullopt);
  write_steps(log, 1, 1);
  EXPECT_EQ(lines(path_).size(), 1U);
  EXPECT_EQ(lines(folder_ / "log.jsonl.abandoned-1").size(), 3U);
}

TEST_F(MetricsLogTest, AFullDiskIsAnIoError) {
  MetricsLog log(path_, std::nullopt);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 8, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(log.step(step_result(1)), base::IoError);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
}

}  // namespace
}  // namespace g2::train
