// Must catch: any order of operations in which a failure, a kill or a power cut leaves no usable
// checkpoint, a failed save that leaves its parts behind, a fault that passes for a success.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_support.h"
#include "tests/train/faulty_file_system.h"
#include "tests/train/power_loss.h"

namespace g2::train {
namespace {

using std::filesystem::path;

// A damaged one that is passed over is expected here, thousands of times.
class Quiet {
 public:
  Quiet() { base::set_log_level(base::LogLevel::kOff); }
  ~Quiet() { base::set_log_level(base::LogLevel::kInfo); }
};

class CrashTest : public testing::Test {
 protected:
  // One of `steps` is the newest valid checkpoint, and holds exactly what was saved.
  static void expect_usable(const path& run_folder, const std::vector<std::int64_t>& steps) {
    const std::optional<path> found = find_latest_valid(run_folder);
    ASSERT_TRUE(found);
    const std::int64_t step = Checkpoint(*found).info().step;
    ASSERT_THAT(steps, testing::Contains(step));
    expect_state_of(*found, step);
  }

  const Quiet quiet_;
  test::TempFolder folder_;
  TinyRun run_;
};

TEST_F(CrashTest, WhateverOperationFailsAUsableCheckpointRemains) {
  for (const Fault fault :
       {Fault::kFail, Fault::kShortWrite, Fault::kDieBefore, Fault::kDieAfter}) {
    int operation = 0;
    for (bool reached = true; reached; ++operation) {
      SCOPED_TRACE(testing::Message() << "fault " << int(fault) << " at operation " << operation);
      const path run_folder =
          folder_ / (std::to_string(int(fault)) + "-" + std::to_string(operation));
      {
        const RunLock lock(run_folder);
        FaultyFileSystem files;
        CheckpointStore store(files, lock, {.keep_last = 1});
        run_.save(store, 1);
        files.fault = fault;
        files.fail_at = files.operations + operation;
        const bool dies = fault == Fault::kDieBefore || fault == Fault::kDieAfter;
        try {
          run_.save(store, 2);  // and removes step 1: failures of that part are warnings
          reached = files.operations > files.fail_at;
        } catch (const base::IoError&) {
          EXPECT_FALSE(dies);
          for (const std::string& name : names_in(run_folder / "checkpoints")) {
            EXPECT_THAT(name, testing::Not(testing::HasSubstr(".tmp-")));
          }
        } catch (const Died&) {
          EXPECT_TRUE(dies);
        }
      }
      expect_usable(run_folder, {1, 2});
      const RunLock lock(run_folder);  // the next start finds a clean folder and goes on
      base::RealFileSystem files;
      CheckpointStore store(files, lock, {.keep_last = 1});
      run_.save(store, 3);
      EXPECT_EQ(names_in(run_folder / "checkpoints").size(), 1U);
      expect_usable(run_folder, {3});
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(operation, 15);  // the faults reached into the removal of the old checkpoint
  }
}

// The first save of a run: nothing, or the checkpoint; never "all are damaged".
TEST_F(CrashTest, AFirstSaveThatIsCutOffIsNoCheckpoint) {
  int operation = 0;
  for (bool reached = true; reached; ++operation) {
    const path run_folder = folder_ / std::to_string(operation);
    {
      const RunLock lock(run_folder);
      FaultyFileSystem files;
      files.fault = Fault::kDieBefore;
      files.fail_at = operation;
      try {
        CheckpointStore store(files, lock, {});
        run_.save(store, 1);
        reached = false;
      } catch (const Died&) {
      }
    }
    if (find_latest_valid(run_folder)) expect_usable(run_folder, {1});
  }
}

TEST_F(CrashTest, PowerLossAtAnyMomentLeavesAUsableCheckpoint) {
  RecordingFileSystem files;
  const path recorded = folder_ / "recorded";
  std::vector<std::size_t> saved;  // operations after which step 1, 2, 3 was durable
  {
    const RunLock lock(recorded);
    CheckpointStore store(files, lock, {.keep_last = 1});
    for (const int step : {1, 2, 3}) {
      run_.save(store, step);
      saved.push_back(files.log.size());
    }
  }
  std::mt19937_64 rng(42);
  int number = 0;
  for (std::size_t count = saved[0]; count <= files.log.size(); ++count) {
    for (const double survival : {0.0, 0.2, 0.5, 0.5, 0.5, 0.8, 1.0}) {
      SCOPED_TRACE(testing::Message() << count << " operations, survival " << survival);
      const path disk = folder_ / ("disk" + std::to_string(number++));
      std::filesystem::create_directory(disk);
      PowerLoss(recorded, survival, rng).build(files.log, count, disk);
      const std::int64_t durable = count >= saved[2] ? 3 : count >= saved[1] ? 2 : 1;
      expect_usable(disk, {durable, durable + 1});
      if (HasFatalFailure()) return;
      std::filesystem::remove_all(disk);
    }
  }
}

// The model itself must see a missing sync: without those of files a checkpoint can be lost.
TEST_F(CrashTest, ThePowerLossModelFindsAMissingSync) {
  RecordingFileSystem files;
  const path recorded = folder_ / "recorded";
  {
    const RunLock lock(recorded);
    CheckpointStore store(files, lock, {.keep_last = 1});
    run_.save(store, 1);
    run_.save(store, 2);
  }
  std::erase_if(files.log, [](const Operation& o) { return o.kind == Operation::kSync; });
  std::mt19937_64 rng(42);
  int unusable = 0;
  for (int number = 0; number < 100; ++number) {
    const path disk = folder_ / ("disk" + std::to_string(number));
    std::filesystem::create_directory(disk);
    PowerLoss(recorded, 0.5, rng).build(files.log, files.log.size(), disk);
    try {
      unusable += find_latest_valid(disk) ? 0 : 1;
    } catch (const base::IoError&) {
      ++unusable;
    }
  }
  EXPECT_GT(unusable, 10);
}

TEST_F(CrashTest, AKillAtAnyMomentLeavesAUsableCheckpoint) {
  std::mt19937_64 rng(42);
  const path run_folder = folder_ / "run";
  base::RealFileSystem files;
  std::int64_t newest = 1;
  std::chrono::microseconds one_save{};
  {
    const RunLock lock(run_folder);
    CheckpointStore store(files, lock, {.keep_last = 1});
    const auto start = std::chrono::steady_clock::now();
    run_.save(store, 1);
    one_save = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - start);
  }
  int started[2];
  ASSERT_EQ(::pipe(started), 0);
  for (int round = 0; round < 40 || newest <= 10; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const RunLock lock(run_folder);
      CheckpointStore store(files, lock, {.keep_last = 1});
      (void)!::write(started[1], "x", 1);
      for (std::int64_t step = newest + 1;; ++step) run_.save(store, step);
    }
    char byte = 0;
    ASSERT_EQ(::read(started[0], &byte, 1), 1);
    std::this_thread::sleep_for(one_save * static_cast<int>(rng() % 400) / 100);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::optional<path> found = find_latest_valid(run_folder);
    ASSERT_TRUE(found);
    const std::int64_t step = Checkpoint(*found).info().step;
    ASSERT_GE(step, newest);
    expect_state_of(*found, step);
    newest = step;
  }
  ::close(started[0]);
  ::close(started[1]);
}

}  // namespace
}  // namespace g2::train
