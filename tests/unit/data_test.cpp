// Must catch: records lost to a byte-order mark or line ends, bad input passed over in silence,
// header counts in 32 bits, samples repeated or lost over epochs, targets across documents,
// attention or positions running on in packed rows.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/permutation.h"
#include "data/tokenize_files.h"
#include "tests/support/support.h"

namespace g2::data {
namespace {

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

template <typename E, typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
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
      {"{\"text\":\"a\"}\n{oops\n", "d.jsonl:2: not a JSON value"},
      {"{\"txt\":\"a\"}\n", "d.jsonl:1: no key 'text' (data.text_key); did you mean 'txt'?"},
      {"{\"text\":5}\n", "d.jsonl:1: 'text' is a number"},
      {"[1]\n", "d.jsonl:1: no key 'text'"},
      {"{\"text\":\"a\xFF\"}\n", "d.jsonl:1: byte 11 of the line is not UTF-8"},
      {"{\"text\":\" \"}\n", "d.jsonl:1: the document is empty"}};
  for (const auto& c : cases) {
    write_text(folder / "d.jsonl", c.content);
    EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "d.jsonl"); }),
                HasSubstr(c.message));
  }
  write_text(folder / "d.txt", "ab\xC3");
  EXPECT_THAT(error_of<base::DataError>([&] { read_all(folder / "d.txt"); }),
              HasSubstr("d.txt: byte 2 is not UTF-8"));
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

TEST(Inputs, ExpandFoldersAndGlobsInOrder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "sub");
  for (const char* name : {"b.txt", "a.jsonl", "sub/c.txt", "ignored.bin"})
    write_text(folder / name, "x");
  const auto names = [&](const std::string& entry) {
    std::vector<std::string> out;
    for (const auto& f : expand_inputs({(folder / entry).string()}))
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

TEST(Tokenize, NothingUsableIsRefusedAndLeavesNoFile) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{bad\n");
  EXPECT_THAT(
      error_of<base::DataError>([&] { tokenize(folder / "d.jsonl", folder / "o.tok", true, 1); }),
      HasSubstr("no usable document: 1 x bad JSON"));
  EXPECT_THROW(tokenize(folder / "d.jsonl", folder / "o.tok", false, 1), base::DataError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenFile, KeepsTheHighestIdOfLargeVocabularies) {
  const TempFolder folder;
  for (const std::uint64_t vocab : {65536ULL, 65537ULL, 256000ULL}) {
    TokenFileWriter writer(folder / "t.tok", {vocab, 7});
    const std::vector<std::int32_t> ids{2, static_cast<std::int32_t>(vocab - 1), 1};
    writer.add_document(ids);
    writer.finish();
    const TokenFile file(folder / "t.tok");
    std::vector<std::int32_t> back(3);
    file.read(0, back);
    EXPECT_EQ(back, ids);
    EXPECT_EQ(file.info().vocabulary_hash, 7U);
  }
}

TEST(TokenFile, RefusesDamage) {
  const TempFolder folder;
  TokenFileWriter writer(folder / "t.tok", {260, 7});
  writer.add_document(std::vector<std::int32_t>{2, 5, 1});
  writer.add_document(std::vector<std::int32_t>{2, 6, 7, 1});
  writer.finish();
  const std::string good = base::read_file(folder / "t.tok");
  EXPECT_NO_THROW(TokenFile(folder / "t.tok"));
  const auto refuses = [&](std::string content, const char* what) {
    write_text(folder / "bad.tok", content);
    EXPECT_THAT(error_of<base::DataError>([&] { TokenFile(folder / "bad.tok"); }), HasSubstr(what));
  };
  for (std::size_t cut = 0; cut < good.size(); ++cut) refuses(good.substr(0, cut), "bad.tok: ");
  const auto with = [&](std::size_t offset, std::uint64_t value, std::size_t bytes) {
    std::string changed = good;
    std::memcpy(changed.data() + offset, &value, bytes);
    return changed;
  };
  refuses(with(0, 'X', 1), "not a token file");
  refuses(with(8, 2, 4), "version 2");
  refuses(with(32, (std::uint64_t{1} << 32) + 7, 8),
          "does not fit");  // a count cut to 32 bits would pass
  refuses(with(32, std::uint64_t{1} << 63, 8), "does not fit");
  refuses(with(40, ~std::uint64_t{0}, 8), "does not fit");
  refuses(with(64, 300, 2), "token 0 has id 300");
  refuses(with(80 + 8, 9, 8), "out of order");
}

TEST(TokenFile, ImportsRawIdsCutAtBos) {
  const TempFolder folder;
  const std::vector<std::int32_t> raw{2, 10, 11, 2, 12};
  std::string bytes(raw.size() * 4, '\0');
  std::memcpy(bytes.data(), raw.data(), bytes.size());
  write_text(folder / "raw", bytes);
  import_raw_u32(folder / "raw", folder / "t.tok", 32000, 2);
  const TokenFile file(folder / "t.tok");
  EXPECT_EQ(file.documents(), 2);
  EXPECT_EQ(file.document_tokens(0), 3);
  EXPECT_THROW(import_raw_u32(folder / "raw", folder / "t.tok", 12, 2), base::DataError);
}

TEST(Permutation, IsABijectionThatChangesWithEpochAndSeed) {
  for (const std::int64_t n : {1, 2, 3, 5, 17, 64, 100, 1000, 4097}) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < n; ++i) seen.insert(permuted(i, n, 9, 0));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), n);
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LT(*seen.rbegin(), n);
  }
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> places(100);
    for (std::int64_t i = 0; i < 100; ++i) places[i] = permuted(i, 100, seed, epoch);
    return places;
  };
  EXPECT_NE(order(1, 0), order(1, 1));  // a second epoch in the same order is the classic mistake
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_EQ(order(1, 3), order(1, 3));
}

// Documents 2 a.. 1 of the given numbers of tokens, BOS and EOS included.
std::vector<Samples::Document> documents(const TempFolder& folder,
                                         const std::vector<int>& lengths) {
  TokenFileWriter writer(folder / "s.tok", {1000, 0});
  std::int32_t next = 10;
  for (const int length : lengths) {
    std::vector<std::int32_t> ids{2};
    while (static_cast<int>(ids.size()) + 1 < length) ids.push_back(next++);
    ids.push_back(1);
    writer.add_document(ids);
  }
  writer.finish();
  const auto file = std::make_shared<const TokenFile>(folder / "s.tok");
  std::vector<Samples::Document> out;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    out.push_back({file, static_cast<std::int64_t>(d)});
  return out;
}

TEST(Samples, StreamRowsCoverTheTokensAndStopAtDocumentEnds) {
  const TempFolder folder;
  const Samples samples(documents(folder, {5, 3, 6}),
                        {.seq_len = 4, .packing = Packing::kStream, .shuffle = false});
  EXPECT_EQ(samples.size(), 3);  // 14 tokens: 3 rows of 4 and a token more, one left over
  EXPECT_EQ(samples.counts().dropped_tokens, 2);
  Batch batch;
  samples.fill_in_order(0, 3, batch);
  EXPECT_THAT(batch.ids, ElementsAre(2, 10, 11, 12, 1, 2, 13, 1, 2, 14, 15, 16));
  EXPECT_THAT(batch.targets, ElementsAre(10, 11, 12, 1, kIgnored, 13, 1, kIgnored, 14, 15, 16, 17));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(batch.lo, ElementsAre(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8));
  EXPECT_EQ(batch.valid_targets, 10);
}

TEST(Samples, PackedRowsKeepDocumentsApart) {
  const TempFolder folder;
  const Samples samples(documents(folder, {4, 8, 3}),
                        {.seq_len = 6, .packing = Packing::kDocuments, .shuffle = false});
  Batch batch;
  samples.fill_in_order(0, samples.size(), batch);
  // 3 inputs of the first, 6 + 1 of the second (cut), 2 of the third: rows {3, 1, 2} and {6}.
  EXPECT_EQ(samples.size(), 2);
  EXPECT_EQ(samples.counts().cut_documents, 1);
  EXPECT_EQ(samples.counts().padding_tokens, 0);
  EXPECT_THAT(batch.ids, ElementsAre(2, 10, 11, 17, 2, 18, 2, 12, 13, 14, 15, 16));
  EXPECT_THAT(batch.targets, ElementsAre(10, 11, 1, 1, 18, 1, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 0, 1, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(batch.lo, ElementsAre(0, 0, 0, 3, 4, 4, 6, 6, 6, 6, 6, 6));
  EXPECT_EQ(batch.valid_targets, 12);
}

TEST(Samples, PaddingIsItsOwnDocumentWithoutTargets) {
  const TempFolder folder;
  const Samples samples(documents(folder, {4}),
                        {.seq_len = 5, .packing = Packing::kDocuments, .pad_id = 0});
  Batch batch;
  samples.fill(0, 1, batch);
  EXPECT_THAT(batch.ids, ElementsAre(2, 10, 11, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(10, 11, 1, kIgnored, kIgnored));
  EXPECT_THAT(batch.lo, ElementsAre(0, 0, 0, 3, 3));
  EXPECT_EQ(batch.valid_targets, 3);
}

TEST(Samples, OrderDependsOnTheCursorAloneAndWrapsIntoTheNextEpoch) {
  const TempFolder folder;
  const Samples samples(documents(folder, {30, 25, 31}),
                        {.seq_len = 5, .packing = Packing::kStream, .seed = 3});
  const std::int64_t n = samples.size();
  std::vector<std::int64_t> whole;
  Batch batch;
  samples.fill(0, 2 * n + 3, batch);
  whole = batch.samples;
  for (const std::int64_t step : {1, 2, 3, 7}) {
    std::vector<std::int64_t> pieces;
    for (std::int64_t cursor = 0; cursor < 2 * n + 3; cursor += step) {
      samples.fill(cursor, std::min(step, 2 * n + 3 - cursor), batch);
      pieces.insert(pieces.end(), batch.samples.begin(), batch.samples.end());
    }
    EXPECT_EQ(pieces, whole) << step;
  }
  for (const std::int64_t epoch : {0, 1}) {  // each epoch has every sample once
    const std::set<std::int64_t> once(whole.begin() + epoch * n, whole.begin() + (epoch + 1) * n);
    EXPECT_EQ(static_cast<std::int64_t>(once.size()), n);
  }
}

DatasetOptions holding_out(double fraction) {
  DatasetOptions options;
  options.validation_fraction = fraction;
  return options;
}

Dataset open(const TempFolder& folder, const std::string& train, DatasetOptions options = {}) {
  base::ThreadPool pool(1);
  options.train = {train};
  options.samples.seq_len = 8;
  options.cache_folder = folder / "cache";
  return open_dataset(options, *tokenizer::open_tokenizer("byte"), pool);
}

TEST(Dataset, SplitsByDocumentAndFindsItsCacheAgain) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\":\"number " + std::to_string(i) + "\"}\n";
  write_text(folder / "d.jsonl", lines);
  const Dataset first = open(folder, (folder / "d.jsonl").string(), holding_out(0.2));
  const std::int64_t held_out = first.validation->counts().documents;
  EXPECT_GT(held_out, 8);
  EXPECT_LT(held_out, 35);
  EXPECT_EQ(first.train->counts().documents + held_out, 100);
  const Dataset again = open(folder, (folder / "d.jsonl").string(), holding_out(0.2));
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 1);
  DatasetOptions other = holding_out(0.2);
  other.samples.seed = 5;
  EXPECT_NE(open(folder, (folder / "d.jsonl").string(), other).hash, first.hash);
}

TEST(Dataset, RefusesATokenFileOfAnotherVocabulary) {
  const TempFolder folder;
  TokenFileWriter writer(folder / "t.tok", {260, 12345});
  for (int d = 0; d < 3; ++d) writer.add_document(std::vector<std::int32_t>(20, 9));
  writer.finish();
  EXPECT_THAT(error_of<base::DataError>([&] { open(folder, (folder / "t.tok").string()); }),
              HasSubstr("made with vocabulary 0000000000003039"));
}

TEST(Dataset, SaysWhenThereIsTooLittle) {
  const TempFolder folder;
  write_text(folder / "one.txt", "a single document");
  EXPECT_THAT(error_of<base::DataError>([&] { open(folder, (folder / "one.txt").string()); }),
              HasSubstr("1 document cannot be split"));
}

TEST(Dataset, CountsTheBytesBehindTargets) {
  const TempFolder folder;
  write_text(folder / "a.txt", "abcdefghij");
  write_text(folder / "b.txt", "klmnopqrst");
  DatasetOptions options;
  options.validation = {(folder / "b.txt").string()};
  const Dataset dataset = open(folder, (folder / "a.txt").string(), options);
  Batch batch;
  dataset.validation->fill_in_order(0, 1, batch);
  EXPECT_EQ(target_bytes(dataset, batch), 8);
}

}  // namespace
}  // namespace g2::data
