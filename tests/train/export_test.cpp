// Must catch: moments exported for weights, a tokenizer that is lost without a word, a damaged
// checkpoint called whole.
#include "train/export.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "data/token_file.h"
#include "model/hf_config.h"
#include "model/hf_folder.h"
#include "tests/support/support.h"
#include "tests/train/checkpoint_support.h"
#include "train/inspect.h"

namespace g2::train {
namespace {

using std::filesystem::path;
using testing::AllOf;
using testing::HasSubstr;

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    CheckpointInfo info = run_.info(5);
    info.config_json = R"({"data": {"tokenizer": "models/t.model"}})";
    info.best = BestResult{5, 2.5};
    store_.save(info, run_.table, run_.ranges());
  }

  test::TempFolder folder_;
  base::RealFileSystem files_;
  RunLock lock_{folder_ / "run"};
  CheckpointStore store_{files_, lock_, {.keep_last = 100}};
  path saved_ = folder_ / "run/checkpoints/step_00000005";
  TinyRun run_{5};
};

TEST_F(ExportTest, WritesTheMasterWeights) {
  export_checkpoint(files_, saved_, {.folder = folder_ / "out", .type = model::ExportType::kF32});
  EXPECT_EQ(model::read_hf_config(folder_ / "out").config, run_.config);
  std::int64_t seen = 0;
  model::load_hf_weights(
      folder_ / "out",
      run_.config,
      run_.table,
      [&](const model::Parameter& p, std::int64_t begin, std::span<const float> values) {
        for (std::size_t i = 0; i < values.size(); ++i, ++seen) {
          ASSERT_EQ(values[i], TinyRun::value(5, 0, p.offset + begin + std::int64_t(i)));
        }
      });
  EXPECT_EQ(seen, run_.table.parameter_count());
}

TEST_F(ExportTest, KnowsTheTokenizerOfTheRun) {
  EXPECT_EQ(tokenizer_of(Checkpoint(saved_).info()), "models/t.model");
  EXPECT_EQ(tokenizer_files("byte"), "");
  EXPECT_THROW(tokenizer_files("models/t.model"), base::IoError);
  std::filesystem::create_directory(folder_ / "hf");
  test::write_text(folder_ / "hf/tokenizer.model", "");
  EXPECT_EQ(tokenizer_files(folder_ / "hf"), folder_ / "hf");
  EXPECT_EQ(tokenizer_files(folder_ / "hf/tokenizer.model"), folder_ / "hf/tokenizer.model");
  test::write_text(folder_ / "hf/tokenizer_config.json", "{}");
  EXPECT_EQ(tokenizer_files(folder_ / "hf/tokenizer.model"), folder_ / "hf");
}

TEST_F(ExportTest, InspectTellsWhatIsThere) {
  EXPECT_THAT(inspect(saved_, Verify::kEveryByte),
              AllOf(HasSubstr("step         5\n"),
                    HasSubstr("best         validation loss 2.5 at step 5\n"),
                    HasSubstr("tensors      13 of each kind: master, m, v\n"),
                    HasSubstr("verified     every byte agrees with its hash\n")));
  EXPECT_THAT(inspect(folder_ / "run", Verify::kHeaders),
              HasSubstr("step_00000005  50 tokens, best: validation loss 2.5\n"));
  EXPECT_THAT(inspect(saved_ / "state-00000-of-00001.safetensors", Verify::kHeaders),
              AllOf(HasSubstr("m/model.embed_tokens.weight/0  [28] F32\n"),
                    HasSubstr("tensors      39, ")));
  export_checkpoint(files_, saved_, {.folder = folder_ / "out"});
  EXPECT_THAT(inspect(folder_ / "out", Verify::kEveryByte),
              AllOf(HasSubstr("tensors      BF16 (13)\n"),
                    HasSubstr("1 layers, hidden 4"),
                    HasSubstr("verified     every tensor is there")));

  data::TokenFileWriter tokens(folder_ / "t.bin", {.vocab_size = 9, .vocabulary_hash = 1});
  const std::int32_t ids[] = {2, 5, 1};
  tokens.add_document(ids);
  tokens.finish();
  EXPECT_THAT(inspect(folder_ / "t.bin", Verify::kHeaders),
              AllOf(HasSubstr("documents    1\n"), HasSubstr("tokens       3\n")));
}

TEST_F(ExportTest, InspectNamesDamage) {
  std::string state = base::read_file(saved_ / "state-00000-of-00001.safetensors");
  state.back() = static_cast<char>(state.back() ^ 4);
  test::write_text(saved_ / "state-00000-of-00001.safetensors", state);
  EXPECT_THROW(inspect(saved_, Verify::kEveryByte), base::IoError);
  EXPECT_THAT(inspect(folder_ / "run", Verify::kEveryByte), HasSubstr("damaged: "));
  test::write_text(saved_ / "manifest.json", "{}");
  EXPECT_THAT(inspect(folder_ / "run", Verify::kHeaders), HasSubstr("is cut or changed"));
  EXPECT_THROW(inspect(folder_ / "nowhere", Verify::kHeaders), base::IoError);
  EXPECT_THROW(inspect(folder_.path(), Verify::kHeaders), base::UsageError);
}

}  // namespace
}  // namespace g2::train
