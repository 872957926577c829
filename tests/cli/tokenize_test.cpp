// Must catch: bad input passed over in silence or named without its place, success without a
// document, output left behind by a failure, ids that depend on the thread count.
#include <gmock/gmock.h>

#include <cstring>

#include "base/file.h"
#include "tests/cli/program.h"
#include "tests/support/support.h"
#ifdef G2_TEST_SENTENCEPIECE
#include "tests/support/sentencepiece_model.h"
#endif

namespace g2 {
namespace {

using test::run_program;
using test::write_text;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TokenizeCommand : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  test::ProgramRun tokenize(const std::vector<std::string>& args) const {
    std::vector<std::string> all{"tokenize", "-o", path("out.tok")};
    all.insert(all.end(), args.begin(), args.end());
    return run_program(all);
  }
  bool wrote() const { return std::filesystem::exists(folder_ / "out.tok"); }

  test::TempFolder folder_;
};

TEST_F(TokenizeCommand, ReportsAndShowsWhatTrainingWillSee) {
  write_text(folder_ / "a.jsonl", "{\"text\":\"Hi\\n\"}\n{\"text\":\"second\"}\n");
  const auto run = tokenize({path("a.jsonl"), "--show", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out,
            path("out.tok") + ": 2 documents, 13 tokens, 0.69 bytes a token\n" +
                "document 0, 5 tokens:\n <bos>(2) H(76) i(109) <0x0A>(14) <eos>(1)\n");
  const auto inspected = run_program({"inspect", "--verify", path("out.tok")});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("agrees with its hash"));
}

TEST_F(TokenizeCommand, IsStrictUnlessToldToSkip) {
  write_text(folder_ / "a.jsonl", "{\"text\":\"a\"}\n{\"txt\":\"b\"}\nnot json\n");
  const auto strict = tokenize({path("a.jsonl")});
  EXPECT_EQ(strict.exit_code, 65);
  EXPECT_THAT(strict.err, HasSubstr("a.jsonl:2: no key 'text'"));
  EXPECT_EQ(std::count(strict.err.begin(), strict.err.end(), '\n'), 1);
  EXPECT_FALSE(wrote());
  const auto skipping = tokenize({path("a.jsonl"), "--skip-bad"});
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_THAT(skipping.out, HasSubstr("1 documents, 3 tokens"));
  EXPECT_THAT(skipping.out, HasSubstr("1 x bad JSON (first: " + path("a.jsonl") + ":3:"));
  EXPECT_THAT(skipping.out, HasSubstr("1 x key missing (first: " + path("a.jsonl") + ":2:"));
}

TEST_F(TokenizeCommand, NothingUsableIsNoSuccess) {
  write_text(folder_ / "a.jsonl", "{}\n{}\n");
  const auto run = tokenize({path("a.jsonl"), "--skip-bad"});
  EXPECT_EQ(run.exit_code, 65);
  EXPECT_THAT(run.err, HasSubstr("no usable document: 2 x key missing"));
  EXPECT_FALSE(wrote());
}

TEST_F(TokenizeCommand, GivesTheSameFileForAnyThreadCount) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"body\":\"line " + std::to_string(i * 37) + "\"}\n";
  write_text(folder_ / "a.jsonl", lines);
  std::vector<std::string> contents;
  for (const char* threads : {"1", "2", "5"}) {
    const auto run = tokenize({path("*.jsonl"), "--text-key", "body", "--threads", threads});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    contents.push_back(base::read_file(folder_ / "out.tok"));
  }
  EXPECT_TRUE(contents[0] == contents[1] && contents[0] == contents[2]);
}

TEST_F(TokenizeCommand, WorksAgainOnAFolderThatHoldsItsOutput) {
  write_text(folder_ / "a.txt", "text");
  EXPECT_EQ(tokenize({folder_.path().string()}).exit_code, 0);
  const auto again = tokenize({folder_.path().string()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 documents, 6 tokens"));
}

TEST_F(TokenizeCommand, ImportsRawIds) {
  const std::int32_t ids[] = {2, 9, 1, 2, 8};
  std::string bytes(sizeof(ids), '\0');
  std::memcpy(bytes.data(), ids, sizeof(ids));
  write_text(folder_ / "ids.bin", bytes);
  const auto run = tokenize({path("ids.bin"), "--raw-u32", "--vocab-size", "10"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, EndsWith("out.tok: 2 documents, 5 tokens\n"));
  EXPECT_EQ(tokenize({path("ids.bin"), "--raw-u32", "--vocab-size", "9"}).exit_code, 65);
  EXPECT_EQ(tokenize({path("ids.bin"), "--raw-u32"}).exit_code, 64);
}

TEST_F(TokenizeCommand, WrongValuesAreUsageErrors) {
  write_text(folder_ / "a.txt", "text");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{path("none.txt")},
        {path("a.txt"), "--threads", "-1"},
        {path("a.txt"), "--threads", "100000"},
        {path("a.txt"), "--tokenizer", path("none.model")},
        {path("a.txt"), "--raw-u32", "--vocab-size", "10", "--bos", "10"}}) {
    const auto run = tokenize(args);
    EXPECT_EQ(run.exit_code, 64) << testing::PrintToString(args) << run.err;
    EXPECT_THAT(run.err, StartsWith("gemma2_train: "));
    EXPECT_FALSE(wrote());
  }
}

#ifdef G2_TEST_SENTENCEPIECE
TEST_F(TokenizeCommand, ReadsASentencePieceFolderAndRefusesItsIdsUnderAnotherTokenizer) {
  test::train_sentencepiece(folder_ / "tokenizer", "<start_of_turn>");
  write_text(folder_ / "a.txt", "tokens <start_of_turn>\n");
  const auto run = tokenize({path("a.txt"), "--tokenizer", folder_.path().string(), "--show", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("<s>(2) "));
  EXPECT_THAT(run.out, testing::Not(HasSubstr("<start_of_turn>(")));
  EXPECT_THAT(run.out, EndsWith(" </s>(1)\n"));
  const auto training = run_program({"train",
                                     "--config",
                                     (test::source_root() / "configs/tiny.json").string(),
                                     "--dry-run",
                                     "--set",
                                     "run.dir=" + path("run"),
                                     "--set",
                                     "data.train=" + path("out.tok"),
                                     "--set",
                                     "data.tokenizer=byte"});
  EXPECT_EQ(training.exit_code, 65) << training.err;
  EXPECT_THAT(training.err, HasSubstr("out.tok: made with vocabulary "));
}
#endif

}  // namespace
}  // namespace g2
