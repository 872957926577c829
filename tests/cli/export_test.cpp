// Must catch: an exit code or message other than the documented one, an export that a wrong
// tokenizer or a damaged checkpoint does not stop.
#include <gmock/gmock.h>

#include "base/file.h"
#include "tests/cli/program.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_support.h"

namespace g2 {
namespace {

using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

class ExportCommand : public testing::Test {
 protected:
  ExportCommand() {
    const train::RunLock lock(folder_ / "run");
    base::RealFileSystem files;
    train::CheckpointStore store(files, lock, {});
    for (const int step : {1, 2}) run_.save(store, step);
  }

  test::TempFolder folder_;
  train::TinyRun run_;
  std::string run_folder_ = folder_ / "run";
  std::string out_ = folder_ / "out";
};

TEST_F(ExportCommand, WritesTheNewestCheckpoint) {
  const auto first = run_program({"export", run_folder_, "-o", out_});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("/out: step 2, f32, 168 parameters: 1 layers"));
  EXPECT_THAT(first.err, HasSubstr("no tokenizer files are written"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model.safetensors"));

  const auto again = run_program({"export", run_folder_, "-o", out_});
  EXPECT_EQ(again.exit_code, 73);
  EXPECT_THAT(again.err, HasSubstr("/out: is not empty; choose another folder, or --force"));
  const auto forced = run_program({"export",
                                   run_folder_ + "/checkpoints/step_00000001",
                                   "-o",
                                   out_,
                                   "--force",
                                   "--dtype",
                                   "bf16"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_THAT(forced.out, HasSubstr("step 1, bf16"));
}

TEST_F(ExportCommand, RefusesWhatWouldMakeAWrongFolder) {
  EXPECT_EQ(run_program({"export", run_folder_, "-o", out_, "--dtype", "f16"}).exit_code, 64);
  EXPECT_EQ(run_program({"export", run_folder_, "-o", out_, "--max-shard-gb", "0"}).exit_code, 64);
  EXPECT_EQ(run_program({"export", folder_ / "none", "-o", out_}).exit_code, 74);
  const auto missing = run_program({"export", run_folder_, "-o", out_, "--tokenizer", "no.model"});
  EXPECT_EQ(missing.exit_code, 74);
  EXPECT_THAT(missing.err, HasSubstr("no.model: the tokenizer of the run is not there"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(ExportCommand, ADamagedCheckpointIsNamedAndTheOneBeforeItTaken) {
  const std::string newest = run_folder_ + "/checkpoints/step_00000002";
  const std::string state = newest + "/state-00000-of-00001.safetensors";
  std::string bytes = base::read_file(state);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_text(state, bytes);
  EXPECT_EQ(run_program({"export", newest, "-o", out_}).exit_code, 74);
  const auto run = run_program({"export", run_folder_, "-o", out_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("are damaged; the checkpoint before it is tried"));
  EXPECT_THAT(run.out, HasSubstr("step 1, f32"));
}

TEST_F(ExportCommand, InspectShowsCheckpointAndFolder) {
  const auto run = run_program({"inspect", run_folder_, "--verify"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(
      run.out,
      AllOf(HasSubstr("step_00000001  10 tokens\n"), HasSubstr("step_00000002  20 tokens\n")));
  ASSERT_EQ(run_program({"export", run_folder_, "-o", out_}).exit_code, 0);
  EXPECT_THAT(run_program({"inspect", out_}).out, HasSubstr("tensors      F32 (13)"));
  EXPECT_EQ(run_program({"inspect", folder_ / "none"}).exit_code, 74);
  EXPECT_EQ(run_program({"inspect"}).exit_code, 64);
}

}  // namespace
}  // namespace g2
