// Must catch: two runs writing into one folder, a lock that outlives its process, a takeover that
// goes unnoticed where flock does not work.
#include "train/run_lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "tests/support/support.h"

namespace g2::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string lock_error(const std::filesystem::path& folder) {
  try {
    const RunLock lock(folder);
  } catch (const base::FolderError& e) {
    EXPECT_EQ(e.exit_code(), base::kFolder);
    return e.what();
  }
  return "no error";
}

TEST(RunLock, TheSecondRunIsToldWhoHoldsTheFolder) {
  const test::TempFolder folder;
  {
    const RunLock lock(folder / "runs/a");
    EXPECT_THAT(lock_error(folder / "runs/a"),
                AllOf(HasSubstr("/runs/a: the run folder is in use by process " +
                                std::to_string(::getpid())),
                      HasSubstr(" on "),
                      HasSubstr(", started 2")));
    EXPECT_EQ(lock_error(folder / "runs/b"), "no error");
    lock.check_still_owner();
  }
  EXPECT_EQ(lock_error(folder / "runs/a"), "no error");
}

TEST(RunLock, DiesWithItsProcess) {
  const test::TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder / "run");
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(lock_error(folder / "run"), HasSubstr("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(lock_error(folder / "run"), "no error");  // owner.json of the dead is no obstacle
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RunLock, NoticesATakeover) {
  const test::TempFolder folder;
  const RunLock lock(folder / "run");
  test::write_text(folder / "run/owner.json",
                   R"({"host": "b", "pid": 7, "started": "now", "nonce": "other"})");
  EXPECT_THROW(lock.check_still_owner(), base::FolderError);
  std::filesystem::remove(folder / "run/owner.json");
  EXPECT_THROW(lock.check_still_owner(), base::FolderError);
}

TEST(RunLock, NamesAFolderThatCannotBeMade) {
  const test::TempFolder folder;
  test::write_text(folder / "file", "");
  EXPECT_THAT(lock_error(folder / "file/run"), HasSubstr("cannot create the run folder"));
}

}  // namespace
}  // namespace g2::train
