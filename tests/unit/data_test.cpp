// Must catch: samples repeated or lost over epochs, targets across documents, attention or
// positions running on in packed rows, another vocabulary's tokens, skip counts lost.
#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/documents_hash.h"
#include "data/permutation.h"
#include "tests/support/support.h"

namespace g2::data {
namespace {

using test::TempFolder;
using test::write_text;
using testing::ElementsAre;
using testing::HasSubstr;

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
  TokenFileWriter writer(folder / "s.tok", {10000, 0});
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

// Each packed piece must be what a batch of that piece alone would hold, and all pieces together
// the documents, each token predicted once.
TEST(Samples, PackedPiecesAreTheDocumentsApart) {
  const TempFolder folder;
  std::mt19937 rng(4);
  std::vector<int> lengths(60);
  for (int& length : lengths) length = 3 + static_cast<int>(rng() % 25);
  const Samples samples(documents(folder, lengths),
                        {.seq_len = 12, .packing = Packing::kDocuments, .seed = 8});
  Batch batch;
  samples.fill(0, samples.size(), batch);
  std::set<std::vector<std::int32_t>> found;
  std::int64_t predicted = 0;
  for (std::size_t i = 0; i < batch.ids.size();) {
    const auto begin = static_cast<std::int32_t>(i);
    std::vector<std::int32_t> piece{batch.ids[i]};
    const bool padding = batch.targets[i] == kIgnored;
    for (; i < batch.ids.size() && batch.lo[i] == begin; ++i) {
      ASSERT_EQ(batch.positions[i], static_cast<std::int32_t>(i) - begin);
      ASSERT_EQ(batch.targets[i] == kIgnored, padding);
      ASSERT_EQ(static_cast<std::int64_t>(i) / 12, begin / 12);  // no row's end is passed
      if (!padding) {
        ASSERT_EQ(batch.ids[i], piece.back());
        piece.push_back(batch.targets[i]);
        ++predicted;
      }
    }
    if (!padding) {
      EXPECT_TRUE(found.insert(piece).second);
    }
  }
  EXPECT_EQ(predicted, batch.valid_targets);
  EXPECT_EQ(predicted, samples.counts().tokens - samples.counts().documents);
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
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 2);
  DatasetOptions other = holding_out(0.2);
  other.samples.seed = 5;
  EXPECT_NE(open(folder, (folder / "d.jsonl").string(), other).hash, first.hash);
}

std::filesystem::path only_token_file(const std::filesystem::path& folder) {
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tok") {
      EXPECT_EQ(found, "");
      found = entry.path();
    }
  }
  return found;
}

TEST(Dataset, KeepsTellingWhatWasSkippedWhenTheCacheIsFound) {
  const TempFolder folder;
  write_text(folder / "a.jsonl", "{\"text\":\"long enough for a row\"}\n{bad\n{}\n");
  write_text(folder / "b.jsonl", "{bad\n{\"text\":\"long enough for a row\"}\n");
  DatasetOptions options;
  options.validation = {(folder / "b.jsonl").string()};
  options.documents.skip_bad = true;
  for (int start = 0; start < 2; ++start) {
    const Dataset dataset = open(folder, (folder / "a.jsonl").string(), options);
    EXPECT_EQ(dataset.skipped.at("bad JSON").count, 2) << "start " << start;
    EXPECT_EQ(dataset.skipped.at("key missing").count, 1) << "start " << start;
  }
}

TEST(Dataset, ADamagedCacheIsMadeAnew) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{\"text\":\"the first document\"}\n{\"text\":\"the second\"}\n");
  const std::string train = (folder / "d.jsonl").string();
  const std::uint64_t hash = open(folder, train).hash;
  const std::filesystem::path tokens = only_token_file(folder / "cache");
  const std::string good = base::read_file(tokens);
  for (const std::string& damaged : {good.substr(0, good.size() - 8), good.substr(0, 10)}) {
    write_text(tokens, damaged);
    EXPECT_EQ(open(folder, train).hash, hash);
    EXPECT_EQ(base::read_file(tokens), good);
  }
  const std::filesystem::path note = std::filesystem::path(tokens).replace_extension(".json");
  for (const char* text : {"{", "{}", "{\"skipped\":{\"x\":1}}"}) {
    write_text(note, text);
    EXPECT_EQ(open(folder, train).hash, hash);
  }
  std::filesystem::remove(note);
  EXPECT_EQ(open(folder, train).hash, hash);
  EXPECT_TRUE(std::filesystem::exists(note));
}

TEST(Dataset, AChangedTextIsTokenisedAgain) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{\"text\":\"the first document\"}\n{\"text\":\"the second\"}\n");
  const std::string train = (folder / "d.jsonl").string();
  const Dataset before = open(folder, train);
  write_text(folder / "d.jsonl",
             "{\"text\":\"the first document\"}\n{\"text\":\"the second, more\"}\n");
  const Dataset after = open(folder, train);
  EXPECT_NE(after.hash, before.hash);
  EXPECT_EQ(after.train->counts().tokens + after.validation->counts().tokens,
            before.train->counts().tokens + before.validation->counts().tokens + 6);
}

TEST(Dataset, TheSameTextGivesTheSameHashFromTextAndTokenFiles) {
  const TempFolder folder;
  write_text(folder / "d.jsonl", "{\"text\":\"the first document\"}\n{\"text\":\"the second\"}\n");
  const std::uint64_t hash = open(folder, (folder / "d.jsonl").string()).hash;
  std::filesystem::copy_file(only_token_file(folder / "cache"), folder / "d.tok");
  EXPECT_EQ(open(folder, (folder / "d.tok").string()).hash, hash);
}

TEST(DocumentsHash, TellsDataApartWithAndWithoutReadingIt) {
  const TempFolder folder, other;
  const auto some = documents(folder, {5, 3, 6});
  const std::vector<Samples::Document> fewer(some.begin(), some.end() - 1);
  const std::vector<Samples::Document> turned(some.rbegin(), some.rend());
  for (const std::int64_t hashed_tokens : {kHashedTokens, std::int64_t{0}}) {
    const std::uint64_t hash = documents_hash(some, 0, hashed_tokens);
    EXPECT_EQ(documents_hash(documents(other, {5, 3, 6}), 0, hashed_tokens), hash);
    EXPECT_NE(documents_hash(documents(other, {5, 4, 5}), 0, hashed_tokens), hash);
    EXPECT_NE(documents_hash(fewer, 0, hashed_tokens), hash);
    EXPECT_NE(documents_hash(turned, 0, hashed_tokens), hash);
    EXPECT_NE(documents_hash(some, 1, hashed_tokens), hash);
  }
  EXPECT_NE(documents_hash(some, 0), documents_hash(some, 0, 13));  // 14 tokens
  EXPECT_EQ(documents_hash(some, 0), documents_hash(some, 0, 14));
}

TEST(Dataset, WarnsOfValidationDataThatIsTrainedOn) {
  const TempFolder folder;
  write_text(folder / "d.txt", "a text that is long enough");
  DatasetOptions options;
  options.validation = {(folder / "." / "d.txt").string()};
  testing::internal::CaptureStderr();
  open(folder, (folder / "d.txt").string(), options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("d.txt: is training and validation data"));
}

TEST(Dataset, RefusesATokenFileOfAnotherVocabulary) {
  const TempFolder folder;
  TokenFileWriter writer(folder / "t.tok", {260, 12345});
  for (int d = 0; d < 3; ++d) writer.add_document(std::vector<std::int32_t>(20, 9));
  writer.finish();
  EXPECT_THAT(test::error_of<base::DataError>([&] { open(folder, (folder / "t.tok").string()); }),
              HasSubstr("made with vocabulary 0000000000003039"));
}

TEST(Dataset, RefusesIdsTheModelDoesNotHave) {
  const TempFolder folder;
  TokenFileWriter writer(folder / "raw.tok", {300, 0});  // a raw import: no vocabulary hash
  for (int d = 0; d < 3; ++d) writer.add_document(std::vector<std::int32_t>(20, 299));
  writer.finish();
  DatasetOptions options;
  EXPECT_THAT(test::error_of<base::DataError>(
                  [&] { open(folder, (folder / "raw.tok").string(), options); }),
              HasSubstr("raw.tok: made for 300 ids, the model has 260"));
  options.vocab_size = 300;
  const Dataset dataset = open(folder, (folder / "raw.tok").string(), options);
  Batch batch;
  dataset.train->fill(0, 1, batch);
  EXPECT_EQ(target_bytes(dataset, batch), std::nullopt);
}

TEST(Dataset, SaysWhenThereIsTooLittle) {
  const TempFolder folder;
  write_text(folder / "one.txt", "a single document");
  EXPECT_THAT(test::error_of<base::DataError>([&] { open(folder, (folder / "one.txt").string()); }),
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
