// Must catch: records lost to a byte-order mark or line ends, bad input passed over in silence or
// named at the wrong place, other formats read as text, output that depends on threads.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "data/inputs.h"
#include "data/token_file.h"
#include "data/tokenize_files.h"
#include "tests/support/support.h"

namespace g2::data {
namespace {

using test::error_of;
using test::TempFolder;
using test::write_text;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> read_all(const std::filesystem::path& file, DocumentOptions options = {}) {
  DocumentReader reader({file}, options);
  std::vector<std::string> texts;
  std::string text;
  while (reader.next(text)) texts.push_back(text);
  return texts;
}

TEST(Documents, ReadTheSameWithMarksLineEndsAndBlankLines) {
  const TempFolder folder;
  const std::string clean = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
  for (const std::string& content :
       {clean,
        "\xEF\xBB\xBF" + clean,
        std::string("{\"text\":\"one\"}\r\n\r\n{\"text\":\"two\"}\r\n"),
        std::string("\n{\"text\":\"one\"}\n\n  \n{\"text\":\"two\"}")}) {
    write_text(folder / "d.jsonl", content);
    EXPECT_THAT(read_all(folder / "d.jsonl"), ElementsAre("one", "two"));
  }
  write_text(folder / "d.txt", "\xEF\xBB\xBFwhole file\n");
  EXPECT_THAT(read_all(folder / "d.txt"), ElementsAre("whole file\n"));
}

TEST(Documents, NameBadInputByFileAndLine) {
  const TempFolder folder;
  const struct {
    const char* content;
    const char* message;
  } cases[] = {
      {"{\"text\":\"a\"}\n{oops\n", "d.jsonl:2:2: not JSON"},
      {"{\"txt\":\"a\"}\n", "d.jsonl:1: no key 'text' (data.text_key); did you mean 'txt'?"},
      {"{\"text\":5}\n", "d.jsonl:1: 'text' is a number"},
      {"[1]\n", "d.jsonl:1: no key 'text'"},
      {"{\"text\":\"a\xFF\"}\n", "d.jsonl:1:11: not UTF-8 (byte offset 10)"},
      {"{\"text\":\" \"}\n", "d.jsonl:1: the document is empty"}};
  for (const auto& c : cases) {
    write_text(folder / "d.jsonl", c.content);
    EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "d.jsonl"); }),
                HasSubstr(c.message));
  }
  write_text(folder / "d.txt", "ab\xC3");
  EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "d.txt"); }),
              HasSubstr("d.txt:1:3: not UTF-8 (byte offset 2)"));
}

TEST(Documents, SkippingCountsEachReasonAndKeepsTheRest) {
  const TempFolder folder;
  write_text(folder / "d.jsonl",
             "{bad\n{\"text\":\"a\"}\n{bad\n{\"other\":1}\n{\"text\":\"\"}\n{\"text\":\"b\"}\n");
  DocumentReader reader({folder / "d.jsonl"}, {.text_key = "text", .skip_bad = true});
  std::vector<std::string> texts;
  std::string text;
  while (reader.next(text)) texts.push_back(text);
  EXPECT_THAT(texts, ElementsAre("a", "b"));
  EXPECT_EQ(reader.skipped().at("bad JSON").count, 2);
  EXPECT_THAT(reader.skipped().at("bad JSON").first, HasSubstr("d.jsonl:1"));
  EXPECT_EQ(reader.skipped().at("key missing").count, 1);
  EXPECT_EQ(reader.skipped().at("empty document").count, 1);
}

TEST(Documents, WindowsLineEndsOfATextFileReadAsLineEnds) {
  const TempFolder folder;
  write_text(folder / "d.txt", "\xEF\xBB\xBFone\r\ntwo\r\r\nthree\r");
  EXPECT_THAT(read_all(folder / "d.txt"), ElementsAre("one\ntwo\r\nthree\r"));
}

TEST(Documents, PlacesCountTheMarkAndEarlierLines) {
  const TempFolder folder;
  const auto message = [&](const char* name, const std::string& content) {
    write_text(folder / name, content);
    return error_of<base::DataError>([&] { read_all(folder / name); });
  };
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_THAT(message("d.jsonl", mark + "{\"text\":\"\xFF\"}\n"),
              HasSubstr("d.jsonl:1:13: not UTF-8 (byte offset 12)"));
  EXPECT_THAT(message("d.jsonl", "{\"text\":\"a\"}\r\n\r\n{\"text\":\"\xC3\"}\n"),
              HasSubstr("d.jsonl:3:10: not UTF-8 (byte offset 25)"));
  EXPECT_THAT(message("d.txt", mark + "a\r\nbc\xE2\x82\n"),
              HasSubstr("d.txt:2:3: not UTF-8 (byte offset 8)"));
  EXPECT_THAT(message("d.jsonl", mark + "{oops\n"), HasSubstr("d.jsonl:1:5: not JSON"));
  EXPECT_THAT(message("d.txt",
                      std::string("\xFF\xFE"
                                  "a\0",
                                  4)),
              HasSubstr("UTF-16"));
}

TEST(Documents, OddJsonIsRefusedNotFatal) {
  const TempFolder folder;
  const std::string deep(100000, '[');
  for (const std::string& line : {std::string("{\"text\":\"a\",\"n\":1e9999}"),
                                  std::string("{\"text\":\"\\ud800\"}"),
                                  std::string("{\"text\":\"a\"} trailing"),
                                  std::string("{\"text\":\"a\nb\"}"),
                                  std::string("null"),
                                  deep}) {
    write_text(folder / "d.jsonl", line);
    EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "d.jsonl"); }),
                HasSubstr("d.jsonl:1"));
  }
}

TEST(Documents, KeysAreSelectable) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{\"body\":\"\\u00e9\\n\",\"text\":\"no\"}\n");
  EXPECT_THAT(read_all(folder / "d.jsonl", {.text_key = "body"}), ElementsAre("\xC3\xA9\n"));
}

TEST(Documents, OneBadAllBadWithAndWithoutSkipping) {
  const TempFolder folder;
  const std::string good = "{\"text\":\"good\"}\n";
  const std::string bad[] = {
      "{\"text\":\"\xFF\"}\n", "{\n", "{}\n", "{\"text\":[]}\n", "{\"text\":\"\"}\n"};
  const char* reasons[] = {
      "bad UTF-8", "bad JSON", "key missing", "not a string", "empty document"};
  for (int i = 0; i < 5; ++i) {
    write_text(folder / "one.jsonl", good + bad[i] + good);
    EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "one.jsonl"); }),
                HasSubstr("one.jsonl:2"));
    DocumentReader reader({folder / "one.jsonl"}, {.skip_bad = true});
    std::string text;
    int documents = 0;
    while (reader.next(text)) ++documents;
    EXPECT_EQ(documents, 2);
    ASSERT_EQ(reader.skipped().size(), 1U);
    EXPECT_EQ(reader.skipped().begin()->first, reasons[i]);
    EXPECT_THAT(reader.skipped().begin()->second.first, HasSubstr("one.jsonl:2"));
    EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
    write_text(folder / "all.jsonl", bad[i] + bad[i] + bad[i]);
    EXPECT_THAT(read_all(folder / "all.jsonl", {.skip_bad = true}), ElementsAre());
  }
}

TEST(Documents, SkipReportsAddUp) {
  SkipReport report{{"bad JSON", {2, "a.jsonl:1"}}};
  add(report, {{"bad JSON", {3, "b.jsonl:9"}}, {"key missing", {1, "b.jsonl:4"}}});
  EXPECT_EQ(describe(report),
            "5 x bad JSON (first: a.jsonl:1); 1 x key missing (first: b.jsonl:4)");
}

TEST(Documents, AFileThatVanishesIsNamed) {
  EXPECT_THAT(error_of<base::IoError>([] { read_all("no/such.jsonl"); }),
              HasSubstr("no/such.jsonl: cannot read: No such file"));
}

TEST(Inputs, NamesFormatsThatOnlyLookLikeText) {
  const TempFolder folder;
  const auto refusal = [&](const char* name, Inputs inputs = Inputs::kTextAndTokenFiles) {
    write_text(folder / name, "G2TOKENS");
    return error_of<base::UsageError>([&] { expand_inputs({(folder / name).string()}, inputs); });
  };
  EXPECT_THAT(refusal("a.parquet"), HasSubstr("read_parquet("));
  EXPECT_THAT(refusal("a.json"), HasSubstr("jq -c '.[]'"));
  EXPECT_THAT(refusal("a.jsonl.gz"), HasSubstr("is compressed"));
  EXPECT_THAT(refusal("a.tok", Inputs::kText), HasSubstr("is a token file already"));
  EXPECT_EQ(refusal("b.tok"), "no error");
  EXPECT_THAT(error_of<base::UsageError>([] { expand_inputs({"/dev/null"}, Inputs::kText); }),
              HasSubstr("neither a file nor a folder"));
}

TEST(Inputs, AFolderOfTextLeavesTokenFilesOut) {
  const TempFolder folder;
  for (const char* name : {"a.txt", "b.ndjson", "made_before.tok"}) write_text(folder / name, "x");
  const std::string entry = folder.path().string();
  EXPECT_EQ(expand_inputs({entry}, Inputs::kText).size(), 2U);
  EXPECT_EQ(expand_inputs({entry}, Inputs::kTextAndTokenFiles).size(), 3U);
}

TEST(Inputs, ExpandFoldersAndGlobsInOrder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "sub");
  for (const char* name : {"b.txt", "a.jsonl", "sub/c.txt", "ignored.bin"})
    write_text(folder / name, "x");
  const auto names = [&](const std::string& entry) {
    std::vector<std::string> out;
    for (const auto& f : expand_inputs({(folder / entry).string()}, Inputs::kTextAndTokenFiles))
      out.push_back(f.filename().string());
    return out;
  };
  EXPECT_THAT(names(""), ElementsAre("a.jsonl", "b.txt", "c.txt"));
  EXPECT_THAT(names("*.txt"), ElementsAre("b.txt"));
  EXPECT_THAT(error_of<base::UsageError>([&] { names("none*"); }), HasSubstr("names no file"));
}

TokenizeReport tokenize(const std::filesystem::path& in,
                        const std::filesystem::path& out,
                        bool skip_bad,
                        int threads) {
  base::ThreadPool pool(threads);
  const auto tokenizer = tokenizer::open_tokenizer("byte");
  return tokenize_files(
      {in}, {.text_key = "text", .skip_bad = skip_bad}, *tokenizer, out, pool, [](auto, auto) {});
}

TEST(Tokenize, OutputDoesNotDependOnThreads) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"text\":\"document " + std::to_string(i * i) + "\"}\n";
  write_text(folder / "d.jsonl", lines);
  const TokenizeReport report = tokenize(folder / "d.jsonl", folder / "1.tok", false, 1);
  tokenize(folder / "d.jsonl", folder / "5.tok", false, 5);
  EXPECT_EQ(base::read_file(folder / "1.tok"), base::read_file(folder / "5.tok"));
  EXPECT_EQ(report.documents, 200);
  const TokenFile file(folder / "1.tok");
  EXPECT_EQ(file.documents(), 200);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.document_tokens(3)));
  file.read(file.document_begin(3), ids);
  EXPECT_EQ(ids.front(), 2);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(tokenizer::decode(*tokenizer::open_tokenizer("byte"), ids), "document 9");
}

TEST(Tokenize, AStopLeavesNothingBehind) {
  const TempFolder folder;
  write_text(folder / "d.txt", "text");
  base::ThreadPool pool(1);
  const auto tokenizer = tokenizer::open_tokenizer("byte");
  const auto stop = [](auto, auto) { throw base::Interrupted("stopped"); };
  EXPECT_THROW(tokenize_files({folder / "d.txt"}, {}, *tokenizer, folder / "o.tok", pool, stop),
               base::Interrupted);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Tokenize, AFailureKeepsTheFileOfBefore) {
  const TempFolder folder;
  write_text(folder / "good.txt", "text");
  write_text(folder / "bad.txt", "\xFF");
  tokenize(folder / "good.txt", folder / "o.tok", false, 1);
  const std::string before = base::read_file(folder / "o.tok");
  EXPECT_THROW(tokenize(folder / "bad.txt", folder / "o.tok", false, 1), base::DataError);
  EXPECT_EQ(base::read_file(folder / "o.tok"), before);
}

TEST(Tokenize, NothingUsableIsRefusedAndLeavesNoFile) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{bad\n");
  EXPECT_THAT(
      error_of<base::DataError>([&] { tokenize(folder / "d.jsonl", folder / "o.tok", true, 1); }),
      HasSubstr("no usable document: 1 x bad JSON"));
  EXPECT_THROW(tokenize(folder / "d.jsonl", folder / "o.tok", false, 1), base::DataError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace g2::data
