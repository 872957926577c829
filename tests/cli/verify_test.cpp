// Must catch: a wrong number that passes, a comparison with another run's reference, an exit code
// of 0 after a failure, --verify-ops without its table, a trace that is empty or moves the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/cli/program.h"
#include "tests/support/support.h"

namespace g2::test {
namespace {

class Verify : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(source_root() / "data/text/reference.jsonl"))
        << "run scripts/make_reference_data.py";
  }

  // The first two steps of tiny.
  ProgramRun verify(const std::filesystem::path& reference, std::vector<std::string> more = {}) {
    const std::string data = (source_root() / "data/text/reference.jsonl").string();
    std::vector<std::string> args = {"verify",
                                     "--config",
                                     (source_root() / "configs/tiny.json").string(),
                                     "--set",
                                     "data.train=" + data,
                                     "--reference",
                                     reference.string(),
                                     "--steps",
                                     "2"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(args);
  }

  // The reference with the first `from` after line `after` replaced.
  std::filesystem::path changed(const std::string& after,
                                const std::string& from,
                                const std::string& to) {
    std::ifstream file(reference_);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find(from, text.find(after));
    EXPECT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    write_text(folder_ / "changed.jsonl", text);
    return folder_ / "changed.jsonl";
  }

  TempFolder folder_;
  const std::filesystem::path reference_ = source_root() / "data/reference/tiny.jsonl";
};

TEST_F(Verify, AgreesWithTheReference) {
  const ProgramRun run = verify(reference_);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("verify: all agree"), std::string::npos) << run.out;
}

TEST_F(Verify, FailsAtOneWrongNumberAndNamesIt) {
  const ProgramRun run = verify(changed("\"step\": 2", "\"grad_norm\": ", "\"grad_norm\": 1"));
  EXPECT_EQ(run.exit_code, 65);
  EXPECT_NE(run.out.find("verify: FAILED"), std::string::npos);
  std::size_t failing = 0;
  for (std::size_t at = 0; (at = run.out.find("FAILS", at)) != std::string::npos; ++at) ++failing;
  EXPECT_EQ(failing, 2U) << run.out;  // in its place and as the worst
  EXPECT_NE(run.out.find("2  grad_norm"), std::string::npos);
}

TEST_F(Verify, RefusesTheReferenceOfAnotherRun) {
  for (const auto& [key, value] :
       {std::pair("\"init_hash\": \"", "initial weights"), {"\"data_hash\": \"", "data's hash"}}) {
    const ProgramRun run = verify(changed("", key, std::string(key) + "f"));
    EXPECT_EQ(run.exit_code, 64);
    EXPECT_NE(run.err.find(value), std::string::npos) << run.err;
  }
  const ProgramRun run = verify(reference_, {"--set", "optimizer.beta1=0.8"});
  EXPECT_EQ(run.exit_code, 64);
  EXPECT_NE(run.err.find("optimizer.beta1 is 0.8, the reference has 0.9"), std::string::npos);
}

TEST_F(Verify, DebugOptionsLookOnAndChangeNothing) {
  const std::filesystem::path trace = folder_ / "trace.jsonl";
  const ProgramRun plain = verify(reference_);
  const ProgramRun run =
      verify(reference_, {"--verify-ops", "--debug-nan", "--trace-ops", trace.string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::size_t table = run.out.find("op                  ");
  ASSERT_NE(table, std::string::npos) << run.out;
  EXPECT_EQ(run.out.substr(0, table), plain.out);  // to the last digit printed
  const std::string verdicts = run.out.substr(table);
  EXPECT_NE(verdicts.find("\nattention_backward "), std::string::npos);
  EXPECT_EQ(verdicts.find("FAILED"), std::string::npos);
  std::ifstream file(trace);
  const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  EXPECT_GT(lines, 300);
}

TEST_F(Verify, ATraceThatCannotBeWrittenIsAnError) {
  const ProgramRun run = verify(reference_, {"--trace-ops", "/nowhere/trace.jsonl"});
  EXPECT_EQ(run.exit_code, 74);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

}  // namespace
}  // namespace g2::test
