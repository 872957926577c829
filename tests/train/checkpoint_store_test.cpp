// Must catch: the last valid checkpoint removed, a damaged one or another branch taken in silence,
// leftovers of a killed process trusted, a fresh start beside damaged checkpoints.
#include "train/checkpoint_store.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_support.h"
#include "tests/train/faulty_file_system.h"

namespace g2::train {
namespace {

using std::filesystem::path;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

void damage(const path& file) {
  std::string content = base::read_file(file);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  test::write_text(file, content);
}

std::string step_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits;
}

class StoreTest : public testing::Test {
 protected:
  path checkpoint(std::int64_t step) const { return checkpoints_ / step_name(step); }
  std::optional<path> latest() const { return find_latest_valid(folder_ / "run"); }

  test::TempFolder folder_;
  path checkpoints_ = folder_ / "run/checkpoints";
  base::RealFileSystem files_;
  RunLock lock_{folder_ / "run"};
  TinyRun run_;
};

TEST_F(StoreTest, TheNewestValidOneIsFound) {
  EXPECT_EQ(latest(), std::nullopt);
  CheckpointStore store(files_, lock_, {.keep_last = 100});
  EXPECT_EQ(latest(), std::nullopt);
  for (const int step : {9, 10, 100'000'000}) run_.save(store, step);  // nine digits sort last
  EXPECT_EQ(latest(), checkpoint(100'000'000));
  damage(checkpoint(100'000'000) / "state-00000-of-00001.safetensors");
  EXPECT_EQ(latest(), checkpoint(10));
  std::filesystem::remove(checkpoint(10) / "manifest.json");
  EXPECT_EQ(latest(), checkpoint(9));
  test::write_text(checkpoint(9) / "manifest.json", "{}");
  try {
    latest();
    FAIL() << "a run would start afresh beside its checkpoints";
  } catch (const base::IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("all 3 checkpoints are damaged"));
    EXPECT_EQ(e.exit_code(), base::kIo);
  }
}

TEST_F(StoreTest, AnExplicitPathIsStrict) {
  CheckpointStore store(files_, lock_, {.keep_last = 100});
  run_.save(store, 1);
  run_.save(store, 2);
  EXPECT_EQ(require_checkpoint(folder_ / "run"), checkpoint(2));
  EXPECT_EQ(require_checkpoint(checkpoint(1)), checkpoint(1));
  damage(checkpoint(2) / "state-00000-of-00001.safetensors");
  EXPECT_THROW(require_checkpoint(checkpoint(2)), base::IoError);
  EXPECT_EQ(require_checkpoint(folder_ / "run"), checkpoint(1));
  EXPECT_THROW(require_checkpoint(folder_ / "nowhere"), base::IoError);
}

TEST_F(StoreTest, LeftoversAreNeverTrustedAndGoAway) {
  {
    CheckpointStore store(files_, lock_, {.keep_last = 100});
    run_.save(store, 1);
    run_.save(store, 2);
  }
  std::filesystem::rename(checkpoint(2), checkpoint(2).string() + ".tmp-0123");
  std::filesystem::create_directory(checkpoints_ / ".trash-step_00000000-1");
  EXPECT_EQ(latest(), checkpoint(1));
  EXPECT_EQ(names_in(checkpoints_).size(), 3U);  // reading removes nothing
  const CheckpointStore store(files_, lock_, {});
  EXPECT_THAT(names_in(checkpoints_), ElementsAre("step_00000001"));
}

TEST_F(StoreTest, GoingBackMovesTheNewerBranchAway) {
  CheckpointStore store(files_, lock_, {.keep_last = 100});
  for (const int step : {1, 2, 3}) run_.save(store, step);
  store.adopt(checkpoint(1));
  EXPECT_EQ(latest(), checkpoint(1));
  const std::vector<std::string> names = names_in(checkpoints_);
  ASSERT_THAT(names, ElementsAre(StartsWith("abandoned-"), "step_00000001"));
  EXPECT_THAT(names_in(checkpoints_ / names[0]), ElementsAre("step_00000002", "step_00000003"));
  store.adopt(checkpoint(1));  // nothing newer: nothing moves
  EXPECT_EQ(names_in(checkpoints_), names);
}

TEST_F(StoreTest, StartingFromAnotherRunMovesAllAway) {
  CheckpointStore store(files_, lock_, {.keep_last = 100});
  run_.save(store, 1);
  const RunLock other_lock(folder_ / "other");
  CheckpointStore other(files_, other_lock, {});
  run_.save(other, 1);
  store.adopt(folder_ / "other/checkpoints/step_00000001");
  EXPECT_EQ(latest(), std::nullopt);
}

TEST_F(StoreTest, ASavedStepIsWrittenAgainOnlyWhenDamagedOrOfAnotherRun) {
  CheckpointStore store(files_, lock_, {.keep_last = 100});
  run_.save(store, 1);
  const auto time = std::filesystem::last_write_time(checkpoint(1) / "manifest.json");
  run_.save(store, 1);
  EXPECT_EQ(std::filesystem::last_write_time(checkpoint(1) / "manifest.json"), time);
  EXPECT_THAT(names_in(checkpoints_), ElementsAre("step_00000001"));

  damage(checkpoint(1) / "manifest.json");
  run_.save(store, 1);
  expect_state_of(checkpoint(1), 1);
  EXPECT_THAT(names_in(checkpoints_), ElementsAre(StartsWith("bad-"), "step_00000001"));

  CheckpointInfo info = run_.info(1);
  info.run_id = "run-b";
  store.save(info, run_.table, run_.ranges());
  EXPECT_EQ(Checkpoint(checkpoint(1)).info().run_id, "run-b");
}

TEST_F(StoreTest, ATakenOverFolderIsNotWrittenTo) {
  CheckpointStore store(files_, lock_, {});
  run_.save(store, 1);
  test::write_text(folder_ / "run/owner.json", R"({"nonce": "another"})");
  EXPECT_THROW(run_.save(store, 2), base::FolderError);
  EXPECT_THAT(names_in(checkpoints_), ElementsAre("step_00000001"));
}

TEST_F(StoreTest, AFullDiskIsSeenBeforeTheFirstByte) {
  FaultyFileSystem disk;
  disk.free = 10 << 20;
  CheckpointStore store(disk, lock_, {.keep_last = 2});
  store.check_space(run_.ranges());
  run_.save(store, 1);
  disk.free = 1000;
  EXPECT_THROW(store.check_space(run_.ranges()), base::IoError);
  try {
    run_.save(store, 2);
    FAIL();
  } catch (const base::IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("step_00000002: not saved: the disk is full; it needs "));
    EXPECT_THAT(e.what(), HasSubstr("MiB, 1000 B are free; older checkpoints are untouched"));
  }
  EXPECT_THAT(names_in(checkpoints_), ElementsAre("step_00000001"));
}

TEST(Retention, KeepsNewestMultiplesAndBest) {
  const std::vector<std::int64_t> steps = {100, 200, 250, 300, 400, 500};
  EXPECT_THAT(removable_steps(steps, 500, {.keep_last = 2}, {}), ElementsAre(100, 200, 250, 300));
  EXPECT_THAT(removable_steps(steps, 500, {.keep_last = 1, .keep_every = 200}, 250),
              ElementsAre(100, 300));
  EXPECT_THAT(
      removable_steps(steps, 500, {.keep_last = 1, .keep_every = 200, .keep_best = false}, 250),
      ElementsAre(100, 250, 300));
  EXPECT_THAT(removable_steps(steps, 300, {.keep_last = 1}, {}), ElementsAre(100, 200, 250));
  EXPECT_THAT(removable_steps({7}, 7, {.keep_last = 0}, {}), IsEmpty());
}

// Random saves and resumes from older steps under random policies: what a policy promises is there.
class RandomHistory {
 public:
  RandomHistory(const path& run_folder, std::mt19937_64& rng)
      : run_folder_(run_folder),
        rng_(rng),
        policy_{.keep_last = 1 + static_cast<std::int64_t>(rng() % 3),
                .keep_every = static_cast<std::int64_t>(rng() % 4) * 10,
                .keep_best = rng() % 2 == 0} {}

  void save_next() {
    step_ += 5;
    run_.set_step(step_);
    CheckpointInfo info = run_.info(step_);
    if (rng_() % 3 == 0) best_ = BestResult{step_, 1.0};
    info.best = best_;
    store_.save(info, run_.table, run_.ranges());
    saved_.insert(step_);
  }

  void go_back() {
    const path folder = run_folder_ / "checkpoints";
    std::vector<std::int64_t> left;  // on disk, older ones may be gone
    for (const std::int64_t step : saved_) {
      if (std::filesystem::exists(folder / step_name(step))) left.push_back(step);
    }
    step_ = left[rng_() % left.size()];
    store_.adopt(folder / step_name(step_));
    best_ = Checkpoint(folder / step_name(step_)).info().best;
    saved_ = {left.begin(), std::upper_bound(left.begin(), left.end(), step_)};
  }

  void check() const {
    std::set<std::int64_t> promised;
    if (policy_.keep_best && best_) promised.insert(best_->step);
    std::int64_t newer = 0;
    for (auto step = saved_.rbegin(); step != saved_.rend(); ++step, ++newer) {
      const bool is_multiple = policy_.keep_every > 0 && *step % policy_.keep_every == 0;
      if (newer < policy_.keep_last || is_multiple) promised.insert(*step);
    }
    for (const std::int64_t step : promised) {
      ASSERT_EQ(find_damage(run_folder_ / "checkpoints" / step_name(step)), std::nullopt) << step;
    }
    const auto latest = find_latest_valid(run_folder_);
    ASSERT_EQ(latest->filename(), step_name(step_));
  }

 private:
  path run_folder_;
  std::mt19937_64& rng_;
  RetentionPolicy policy_;
  base::RealFileSystem files_;
  RunLock lock_{run_folder_};
  CheckpointStore store_{files_, lock_, policy_};
  TinyRun run_;
  std::int64_t step_ = 0;
  std::optional<BestResult> best_;
  std::set<std::int64_t> saved_;
};

TEST(Retention, KeepsItsPromisesOverRandomHistories) {
  const test::TempFolder folder;
  std::mt19937_64 rng(42);
  for (int number = 0; number < 12; ++number) {
    SCOPED_TRACE(number);
    RandomHistory history(folder / std::to_string(number), rng);
    history.save_next();
    for (int action = 0; action < 25; ++action) {
      rng() % 6 == 0 ? history.go_back() : history.save_next();
      history.check();
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace g2::train
