// Must catch: a changed byte that passes, numbers that do not survive JSON, a piece read from the
// wrong place when the ranks of writer and reader differ.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_support.h"

namespace g2::train {
namespace {

using std::filesystem::path;
using testing::ElementsAre;
using testing::HasSubstr;

// In place; the same call again undoes it.
void flip_bit(const path& file, std::size_t byte, int bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int value = stream.get() ^ (1 << bit);
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(value));
}

class CheckpointTest : public testing::Test {
 protected:
  test::TempFolder folder_;
  base::RealFileSystem files_;
  RunLock lock_{folder_ / "run"};
  CheckpointStore store_{files_, lock_, {.keep_last = 100}};
  path saved_ = folder_ / "run/checkpoints/step_00000005";
  TinyRun run_{5};
};

TEST_F(CheckpointTest, RestoresTensorsAndNumbersExactly) {
  CheckpointInfo info = run_.info(5);
  info.tokens = 1'234'567'890'123'456'789;
  info.cursor = 9'007'199'254'740'993;  // not a double
  info.best = BestResult{3, 0.1 + 0.2};
  info.counters = {{"skipped_steps", 3}};
  info.config_json = R"({"run": {"seed": 1}, "optimizer": {"learning_rate": 1e-05}})";
  info.config_hash = "c";
  info.vocabulary_hash = "v";
  info.data_hash = "d";
  info.parent = "run-0/7";
  store_.save(info, run_.table, run_.ranges());
  expect_state_of(saved_, 5);
  const Checkpoint read(saved_);
  EXPECT_EQ(read.info().tokens, info.tokens);
  EXPECT_EQ(read.info().cursor, info.cursor);
  EXPECT_EQ(read.info().seed, 0xfedcba9876543210U);
  EXPECT_EQ(read.info().best->step, 3);
  EXPECT_EQ(read.info().best->val_loss, 0.1 + 0.2);
  EXPECT_EQ(read.info().counters, info.counters);
  EXPECT_EQ(read.info().model, tiny_config());
  EXPECT_EQ(nlohmann::json::parse(read.info().config_json),
            nlohmann::json::parse(info.config_json));
  EXPECT_EQ(read.info().config_hash, "c");
  EXPECT_EQ(read.info().vocabulary_hash, "v");
  EXPECT_EQ(read.info().data_hash, "d");
  EXPECT_EQ(read.info().run_id, "run-a");
  EXPECT_EQ(read.info().parent, "run-0/7");
  EXPECT_THAT(names_in(saved_), ElementsAre("manifest.json", "state-00000-of-00001.safetensors"));
}

TEST_F(CheckpointTest, EveryFlippedBitIsFoundAndItsFileNamed) {
  run_.save(store_, 5);
  EXPECT_EQ(find_damage(saved_), std::nullopt);
  for (const std::string& name : names_in(saved_)) {
    const path file = saved_ / name;
    const std::size_t bits = std::filesystem::file_size(file) * 8;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      flip_bit(file, bit / 8, static_cast<int>(bit % 8));
      const auto damage = find_damage(saved_);
      ASSERT_TRUE(damage) << name << " bit " << bit;
      ASSERT_THAT(*damage, HasSubstr(name));
      flip_bit(file, bit / 8, static_cast<int>(bit % 8));
    }
  }
  EXPECT_EQ(find_damage(saved_), std::nullopt);
}

TEST_F(CheckpointTest, ACutFileIsFound) {
  run_.save(store_, 5);
  for (const std::string& name : names_in(saved_)) {
    const path file = saved_ / name;
    const std::string content = base::read_file(file);
    for (std::size_t length = 0; length < content.size(); length += 5) {
      std::filesystem::resize_file(file, length);
      ASSERT_TRUE(find_damage(saved_)) << name << " cut at " << length;
      test::write_text(file, content);
    }
    std::filesystem::remove(file);
    EXPECT_THAT(find_damage(saved_).value_or(""), HasSubstr(name));
    test::write_text(file, content);
  }
}

TEST_F(CheckpointTest, DamageBeyondTheFirstBlockIsLocated) {
  std::vector<float> large(6 << 20);  // 24 MiB: two blocks of the hash
  const std::vector<CheckpointRange> ranges = {
      {.kind = "master", .name = "x", .count = 6 << 20, .host = large.data()}};
  std::filesystem::create_directory(folder_ / "large");
  Manifest manifest;
  manifest.info = run_.info(1);
  manifest.files.push_back(write_state_file(files_, folder_ / "large", 0, 1, ranges));
  EXPECT_EQ(manifest.files[0].block_hashes.size(), 2U);
  test::write_text(folder_ / "large/manifest.json", to_json(manifest));
  EXPECT_EQ(find_damage(folder_ / "large"), std::nullopt);
  flip_bit(folder_ / "large/state-00000-of-00001.safetensors", 20 << 20, 0);
  EXPECT_THAT(find_damage(folder_ / "large").value_or(""), HasSubstr("bytes 16777216 to 25165"));
}

// A manifest and the files of `ranks` ranks, each holding its share of every tensor.
void write_as_ranks(base::FileSystem& files, const path& folder, TinyRun& run, int ranks) {
  std::filesystem::create_directory(folder);
  Manifest manifest;
  manifest.info = run.info(3);
  manifest.kinds = {"master", "m", "v"};
  for (const auto& p : run.table.parameters()) manifest.tensors.push_back({p.name, p.shape});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<CheckpointRange> own;
    for (CheckpointRange range : run.ranges()) {
      const std::int64_t begin = range.count * rank / ranks;
      range.count = range.count * (rank + 1) / ranks - begin;
      range.begin = begin;
      range.host = static_cast<float*>(range.host) + begin;
      if (range.count > 0) own.push_back(range);
    }
    manifest.files.push_back(write_state_file(files, folder, rank, ranks, own));
  }
  test::write_text(folder / "manifest.json", to_json(manifest));
}

TEST_F(CheckpointTest, ReadsRangesHoweverTheRanksHadCutThem) {
  run_.set_step(3);
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const path folder = folder_ / ("ranks" + std::to_string(ranks));
    write_as_ranks(files_, folder, run_, ranks);
    EXPECT_EQ(find_damage(folder), std::nullopt);
    expect_state_of(folder, 3);

    const Checkpoint read(folder);
    const model::Parameter& p = run_.table.at("model.embed_tokens.weight");
    for (std::int64_t begin = 0; begin <= p.count; ++begin) {
      std::vector<float> some(static_cast<std::size_t>(p.count - begin));
      read.read("m", p.name, begin, some);
      for (std::size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(some[i], TinyRun::value(3, 1, p.offset + begin + static_cast<std::int64_t>(i)));
      }
    }
    std::vector<float> more(static_cast<std::size_t>(p.count) + 1);
    EXPECT_THROW(read.read("m", p.name, 0, more), base::DataError);
    EXPECT_THROW(read.read("g", p.name, 0, more), base::DataError);
  }
}

TEST_F(CheckpointTest, RefusesPiecesWithAGapOrTwice) {
  std::vector<CheckpointRange> ranges = run_.ranges();
  ranges[0].count -= 1;
  store_.save(run_.info(5), run_.table, ranges);
  EXPECT_THAT(find_damage(saved_).value_or(""), HasSubstr("but the pieces end at"));

  Manifest manifest;
  manifest.info = run_.info(5);
  std::filesystem::create_directory(folder_ / "twice");
  for (const int rank : {0, 1}) {
    manifest.files.push_back(write_state_file(files_, folder_ / "twice", rank, 2, run_.ranges()));
  }
  test::write_text(folder_ / "twice/manifest.json", to_json(manifest));
  EXPECT_THAT(find_damage(folder_ / "twice").value_or(""), HasSubstr("in another file, too"));
}

TEST_F(CheckpointTest, KeepsDoublesExactly) {
  std::vector<double> flat(static_cast<std::size_t>(run_.table.flat_size()));
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = 1.0 / (3 + static_cast<double>(i));
  store_.save(
      run_.info(5), run_.table, flat_ranges(run_.table, "master", flat.data(), DType::kF64));
  const Checkpoint read(saved_);
  std::vector<double> got(28);
  read.read("master", "model.embed_tokens.weight", 0, got);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), flat.begin()));
}

TEST_F(CheckpointTest, NamesAnotherVersionOfTheFormat) {
  Manifest manifest;
  manifest.info = run_.info(5);
  std::string text = to_json(manifest);
  EXPECT_EQ(parse_manifest(text, "m").info.step, 5);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_THROW(parse_manifest(text, "m"), base::DataError);  // its hash tells
  EXPECT_THROW(parse_manifest("", "m"), base::DataError);
  EXPECT_THROW(parse_manifest("{}", "m"), base::DataError);
}

}  // namespace
}  // namespace g2::train
