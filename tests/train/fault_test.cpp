// The convergence test must be able to fail. Must catch, one at a time: the softcap dropped in the
// attention backward, a window off by one, a norm gain without the 1 +, the loss averaged per
// micro-batch, an embedding gradient without the head's part, interleaved RoPE, weight decay on
// norms. And every right way of computing must pass: precisions, recomputation, chunks of the
// head, accumulation, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "base/thread_pool.h"
#include "config/load.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "model/resolve.h"
#include "tests/support/support.h"
#include "tests/train/faulty_ops.h"
#include "train/verify.h"

namespace g2::test {
namespace {

config::RunConfig tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = overrides;
  all.push_back("data.train=" + (source_root() / "data/text/reference.jsonl").string());
  config::RunConfig c = config::load_config(source_root() / "configs/tiny.json", all).config;
  return c;
}

class Convergence : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(source_root() / "data/text/reference.jsonl"))
        << "run scripts/make_reference_data.py";
    reference_ = train::read_reference(source_root() / "data/reference/tiny.jsonl");
    const config::RunConfig c = tiny();
    base::ThreadPool pool(1);
    tokenizer_ = tokenizer::open_tokenizer(c.data.tokenizer);
    data::DatasetOptions options;
    options.train = c.data.train;
    options.validation_fraction = std::get<double>(c.data.validation);
    options.documents = {.text_key = c.data.text_key, .skip_bad = c.data.skip_bad};
    options.samples = {.seq_len = c.data.seq_len,
                       .packing = data::Packing::kDocuments,
                       .pad_id = tokenizer_->special().pad,
                       .seed = static_cast<std::uint64_t>(c.run.seed),
                       .shuffle = c.data.shuffle};
    options.cache_folder = folder_ / "tokens";
    dataset_ = data::open_dataset(options, *tokenizer_, pool);
  }

  // Trains tiny from its start with `fault` put in, and compares with the reference.
  train::VerifyReport run(const std::vector<std::string>& overrides = {},
                          FaultSettings faults = {},
                          std::int64_t window_change = 0,
                          int threads = 1) {
    config::RunConfig c = tiny(overrides);
    c.run.dir = (folder_ / base::cat("run", runs_++)).string();
    std::vector<std::string> warnings;
    model::Gemma2Config model = model::resolve_model(c.model, warnings);
    cpu::CpuDevice device(threads);
    cpu::CpuOps cpu_ops(device.pool());
    faults.micro_batches = c.train.global_batch / *c.train.micro_batch;
    faults.embedding_elements = model.vocab_size * model.hidden_size;
    faults.weight_decay = c.optimizer.weight_decay;
    FaultyOps ops(cpu_ops, faults);
    model.sliding_window += window_change;
    train::Trainer trainer({.config = c,
                            .model = model,
                            .device = device,
                            .ops = ops,
                            .dataset = dataset_,
                            .vocabulary_hash = tokenizer_->vocabulary_hash(),
                            .version = "test"},
                           {});
    train::require_same_run(reference_, c, dataset_, train::weights_hash(trainer.model()));
    return train::verify(trainer, reference_, 0);
  }

  TempFolder folder_;
  int runs_ = 0;
  train::ReferenceLog reference_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  data::Dataset dataset_;
};

std::string text_of(const train::Comparison& c) {
  return base::cat("step ",
                   c.step,
                   ", ",
                   c.quantity,
                   ": ",
                   c.ours,
                   ", reference ",
                   c.reference,
                   ", ",
                   c.share(),
                   " of the limit");
}

// Passes, and says how near it came.
void expect_agreement(const char* name, const train::VerifyReport& report) {
  std::printf("%-28s worst: %s\n", name, text_of(report.worst()).c_str());
  EXPECT_TRUE(report.holds()) << name << ": " << train::report_table(report);
  EXPECT_EQ(std::ranges::count(report.comparisons, "loss", &train::Comparison::quantity), 50);
}

void expect_failure(const char* name, const train::VerifyReport& report) {
  const auto first = std::ranges::find_if(report.comparisons,
                                          [](const train::Comparison& c) { return !c.holds(); });
  ASSERT_NE(first, report.comparisons.end())
      << name << " passes; worst: " << text_of(report.worst());
  std::printf("%-28s first: %s\n%-28s worst: %s\n",
              name,
              text_of(*first).c_str(),
              "",
              text_of(report.worst()).c_str());
  EXPECT_FALSE(report.holds());
  EXPECT_NE(train::report_table(report).find("FAILS"), std::string::npos);
}

TEST_F(Convergence, HoldsInEveryPrecisionOfTheReference) {
  expect_agreement("fp64", run({"train.precision=fp64"}));
  expect_agreement("fp32", run({"train.precision=fp32"}));
}

TEST_F(Convergence, HoldsForEveryRecomputation) {
  for (const char* how : {"none", "norms", "layer"}) {
    expect_agreement(how, run({base::cat("train.recompute=", how)}));
  }
}

TEST_F(Convergence, HoldsForEveryMicroBatch) {
  for (const int rows : {1, 2, 4, 8}) {
    expect_agreement(base::cat("micro_batch ", rows).c_str(),
                     run({base::cat("train.micro_batch=", rows)}));
  }
}

TEST_F(Convergence, HoldsForSmallAndLargeChunksOfTheHead) {
  const std::vector<std::string> whole = {"train.micro_batch=8"};  // 256 tokens: two chunks of 128
  expect_agreement("smallest chunks", run(whole, {.smallest_lm_head_chunks = true}));
  expect_agreement("one chunk", run(whole));
}

TEST_F(Convergence, HoldsBitForBitForEveryThreadCount) {
  const train::VerifyReport one = run();
  for (const int threads : {2, 5}) {
    const train::VerifyReport more = run({}, {}, 0, threads);
    expect_agreement(base::cat(threads, " threads").c_str(), more);
    for (std::size_t i = 0; i < one.comparisons.size(); ++i) {
      EXPECT_EQ(more.comparisons[i].ours, one.comparisons[i].ours) << one.comparisons[i].quantity;
    }
  }
}

TEST_F(Convergence, FailsWhenTheSoftcapIsDroppedInTheBackward) {
  expect_agreement("own attention backward", run({}, {.fault = Fault::kOwnAttentionBackward}));
  expect_failure("no 1 - t^2", run({}, {.fault = Fault::kNoCapInAttentionBackward}));
}

TEST_F(Convergence, FailsWhenTheWindowIsOffByOne) {
  expect_failure("window + 1", run({}, {}, 1));
  expect_failure("window - 1", run({}, {}, -1));
}

TEST_F(Convergence, FailsWhenTheNormGainLacksTheOne) {
  expect_failure("gain w", run({}, {.fault = Fault::kGainWithoutOne}));
}

TEST_F(Convergence, FailsWhenTheLossIsAveragedPerMicroBatch) {
  for (const int rows : {1, 4}) {
    expect_failure(
        base::cat("mean of means, micro_batch ", rows).c_str(),
        run({base::cat("train.micro_batch=", rows)}, {.fault = Fault::kMeanPerMicroBatch}));
  }
}

TEST_F(Convergence, FailsWhenTheEmbeddingLacksTheHeadsGradient) {
  expect_failure("no head gradient", run({}, {.fault = Fault::kNoHeadGradient}));
}

TEST_F(Convergence, FailsWhenRopeIsInterleaved) {
  expect_failure("interleaved RoPE", run({}, {.fault = Fault::kInterleavedRope}));
}

TEST_F(Convergence, FailsWhenNormsDecay) {
  expect_failure("decayed norms", run({}, {.fault = Fault::kDecayedNorms}));
}

}  // namespace
}  // namespace g2::test
