#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/generate.h"
#include "tests/model/tiny_model.h"

namespace g2 {
namespace {

using test::OwnedBatch;
using test::TestModel;

TEST(MicroBatch, WindowCountsTheQuerysOwnKey) {  // W + 1 keys is the classic mistake
  const std::vector<std::int32_t> lo{0, 0, 0, 0, 0, 5, 5, 5};
  EXPECT_EQ(model::windowed_lo(lo, 3), (std::vector<std::int32_t>{0, 0, 0, 1, 2, 5, 5, 5}));
  EXPECT_EQ(model::windowed_lo(lo, 1), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(model::windowed_lo(lo, 0), lo);
}

TEST(MicroBatch, HiIsTheLastQueryThatSeesAKey) {
  for (const std::int64_t window : {0, 1, 2, 3, 7, 100}) {
    const OwnedBatch batch = test::random_batch(3, 17, true, 5);
    const auto lo = model::windowed_lo(batch.lo, window);
    const auto hi = model::mirror_hi(lo);
    for (std::size_t j = 0; j < lo.size(); ++j) {
      std::size_t last = j;
      for (std::size_t i = j; i < lo.size(); ++i) {
        if (static_cast<std::size_t>(lo[i]) <= j) last = i;
      }
      ASSERT_EQ(hi[j], static_cast<std::int32_t>(last)) << "window " << window << " key " << j;
    }
  }
}

TEST(MicroBatch, GroupsRowsByIdWithoutThePaddingId) {
  const std::vector<std::int32_t> ids{7, 0, 2, 7, 2, 9};
  const model::HostRowGroups groups = model::group_rows_by_id(ids, 0);
  EXPECT_EQ(groups.ids, (std::vector<std::int32_t>{2, 7, 9}));
  EXPECT_EQ(groups.begin, (std::vector<std::int32_t>{0, 2, 4, 5}));
  EXPECT_EQ(groups.rows, (std::vector<std::int32_t>{2, 4, 0, 3, 5}));
  EXPECT_EQ(model::group_rows_by_id(ids, -1).ids.size(), 4U);
  EXPECT_EQ(model::group_rows_by_id({}, 0).begin, (std::vector<std::int32_t>{0}));
}

TEST(ParameterTable, HoldsEveryTensorOfTheThreeModels) {
  const struct {
    const char* preset;
    std::int64_t parameters;
    std::size_t tensors;
  } cases[] = {{"gemma2_2b", 2'614'341'888, 288},
               {"gemma2_9b", 9'241'705'984, 464},
               {"gemma2_27b", 27'227'128'320, 508}};
  for (const auto& c : cases) {
    const model::ParameterTable table(model::preset(c.preset));
    EXPECT_EQ(table.parameter_count(), c.parameters) << c.preset;
    EXPECT_EQ(table.parameters().size(), c.tensors) << c.preset;
  }
}

TEST(ParameterTable, TilesTheBufferAndKeepsFusedTensorsTogether) {
  model::Gemma2Config c = test::tiny_config();
  c.hidden_size = 39;  // nothing is a multiple of the alignment
  const model::ParameterTable table(c);
  std::int64_t end = 0;
  for (const model::Parameter& p : table.parameters()) {
    EXPECT_GE(p.offset, end) << p.name;
    EXPECT_LT(p.offset - end, model::kParameterAlignment) << p.name;
    EXPECT_EQ(table.holding(p.offset), &p);
    EXPECT_EQ(table.holding(p.offset + p.count - 1), &p);
    if (p.offset > end) {
      EXPECT_EQ(table.holding(end), nullptr);
    }
    end = p.offset + p.count;
  }
  const auto& q = table.at("model.layers.1.self_attn.q_proj.weight");
  const auto& k = table.at("model.layers.1.self_attn.k_proj.weight");
  const auto& v = table.at("model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(k.offset, q.offset + q.count);
  EXPECT_EQ(v.offset, k.offset + k.count);
  EXPECT_EQ(table.at("model.layers.0.mlp.up_proj.weight").offset,
            table.at("model.layers.0.mlp.gate_proj.weight").offset + c.intermediate_size * 39);
}

TEST(ParameterTable, WeightDecaySparesNormsAndByDefaultTheEmbedding) {
  const model::ParameterTable table(test::tiny_config());
  for (const bool decay_embedding : {false, true}) {
    std::int64_t end = 0;
    for (const model::DecayRange& range : table.decay_ranges(decay_embedding)) {
      EXPECT_EQ(range.begin, end);
      end = range.end;
      for (const model::Parameter& p : table.parameters()) {
        if (p.offset < range.begin || p.offset >= range.end) continue;
        const bool is_norm = p.shape.size() == 1;
        EXPECT_EQ(range.decays, p.is_embedding ? decay_embedding : !is_norm) << p.name;
      }
    }
    EXPECT_EQ(end, table.flat_size());
  }
}

TEST(Initialise, NormsStartAtZeroAndMatricesHaveTheStandardDeviation) {
  model::Gemma2Config c = test::tiny_config();
  c.initializer_range = 0.02;
  const OwnedBatch batch = test::random_batch(1, 8, false, 1);
  TestModel t(c, test::tiny_options(DType::kF32, batch));
  t.model.initialise(5);
  for (const model::Parameter& p : t.model.table().parameters()) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < p.count; ++i) {
      const double x = t.get(p.offset + i);
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(p.count);
    if (p.shape.size() == 1) {
      EXPECT_EQ(squares, 0) << p.name;  // gain 1 + 0: transformers once started them at 1
    } else {
      EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n)) << p.name;
      EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2 * n) + 3e-4) << p.name;
    }
  }
  for (std::int64_t i = 0; i < c.hidden_size; ++i) EXPECT_EQ(t.get(i), 0);  // the padding id's row
  const double first = t.get(5 * c.hidden_size);
  t.model.initialise(6);
  EXPECT_NE(t.get(5 * c.hidden_size), first);
  t.model.initialise(5);
  EXPECT_EQ(t.get(5 * c.hidden_size), first);
}

TEST(EmbeddingScale, IsRoundedToTheComputeType) {  // gemma2.md 1.1
  EXPECT_EQ(model::rounded_embedding_scale(2304, DType::kBF16), 48);
  EXPECT_EQ(model::rounded_embedding_scale(3584, DType::kBF16), 59.75);
  EXPECT_EQ(model::rounded_embedding_scale(4608, DType::kBF16), 68);
  EXPECT_EQ(model::rounded_embedding_scale(3584, DType::kF32),
            static_cast<double>(std::sqrt(3584.0F)));
  EXPECT_EQ(model::rounded_embedding_scale(3584, DType::kF64), std::sqrt(3584.0));
}

TEST(Model,
     AccumulationGivesTheGradientOfTheWholeStep) {  // not the mean of the micro-batches' means
  const OwnedBatch batch = test::random_batch(4, 13, true, 9);
  TestModel whole(test::tiny_config(), test::tiny_options(DType::kF64, batch));
  TestModel parts(test::tiny_config(), test::tiny_options(DType::kF64, batch));
  const double loss = whole.loss_and_gradients(batch);
  const auto valid = static_cast<double>(batch.valid_targets());
  parts.model.forward_backward(batch.view(0, 1), 1 / valid, true);
  parts.model.forward_backward(batch.view(1, 3), 1 / valid, false);
  EXPECT_NEAR(parts.model.read_sums().loss / valid, loss, 1e-14 * loss);
  EXPECT_LT(test::relative_l2(parts.gradients(), whole.gradients()), 1e-13);
}

TEST(Model, PackedDocumentsEqualDocumentsApart) {
  const OwnedBatch packed = test::random_batch(1, 24, true, 21);
  TestModel together(test::tiny_config(), test::tiny_options(DType::kF64, packed));
  TestModel apart(test::tiny_config(), test::tiny_options(DType::kF64, packed));
  const double loss = together.loss_and_gradients(packed);
  const auto valid = static_cast<double>(packed.valid_targets());
  int documents = 0;
  for (std::size_t begin = 0; begin < packed.ids.size(); ++documents) {
    std::size_t end = begin + 1;
    while (end < packed.ids.size() && packed.lo[end] == packed.lo[begin]) ++end;
    OwnedBatch one;
    one.rows = 1;
    one.seq_len = static_cast<std::int64_t>(end - begin);
    for (std::size_t n = begin; n < end; ++n) {
      one.ids.push_back(packed.ids[n]);
      one.targets.push_back(packed.targets[n]);
      one.positions.push_back(static_cast<std::int32_t>(n - begin));
      one.lo.push_back(0);
    }
    apart.model.forward_backward(one.view(), 1 / valid, begin == 0);
    begin = end;
  }
  ASSERT_GT(documents, 2);
  EXPECT_NEAR(apart.model.read_sums().loss / valid, loss, 1e-14 * loss);
  EXPECT_LT(test::relative_l2(apart.gradients(), together.gradients()), 1e-13);
}

TEST(Model, RecomputingGivesTheSameBits) {
  const OwnedBatch batch = test::random_batch(2, 13, true, 4);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    model::ModelOptions options = test::tiny_options(dtype, batch);
    TestModel kept(test::tiny_config(4), options);
    const double loss = kept.loss_and_gradients(batch);
    for (const model::Recompute level : {model::Recompute::kNorms, model::Recompute::kLayer}) {
      options.recompute = level;
      TestModel recomputed(test::tiny_config(4), options);
      EXPECT_EQ(recomputed.loss_and_gradients(batch), loss);
      EXPECT_EQ(recomputed.gradients(), kept.gradients()) << dtype_name(dtype);
    }
  }
}

TEST(Model, ThreadCountChangesNoBit) {
  const OwnedBatch batch = test::random_batch(3, 29, true, 6);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestModel one(test::tiny_config(), test::tiny_options(dtype, batch), 1);
    const double loss = one.loss_and_gradients(batch);
    for (const int threads : {2, 5}) {
      TestModel many(test::tiny_config(), test::tiny_options(dtype, batch), threads);
      EXPECT_EQ(many.loss_and_gradients(batch), loss);
      EXPECT_EQ(many.gradients(), one.gradients());
    }
  }
}

TEST(Model, PrecisionsAgreeWithinTheirRounding) {
  const OwnedBatch batch = test::random_batch(2, 13, true, 8);
  TestModel exact(test::tiny_config(4), test::tiny_options(DType::kF64, batch));
  const double loss = exact.loss_and_gradients(batch);
  TestModel f32(test::tiny_config(4), test::tiny_options(DType::kF32, batch));
  EXPECT_NEAR(f32.loss_and_gradients(batch), loss, 2e-6);  // bounds of docs/numerics.md
  EXPECT_LT(test::relative_l2(f32.gradients(), exact.gradients()), 1e-5);
  TestModel half(test::tiny_config(4), test::tiny_options(DType::kBF16, batch));
  EXPECT_NEAR(half.loss_and_gradients(batch), loss, 2e-2);
  EXPECT_LT(test::relative_l2(half.gradients(), exact.gradients()), 6e-2);
}

TEST(Model, EvaluationLossIsTheTrainingLoss) {
  const OwnedBatch batch = test::random_batch(2, 13, true, 8);
  model::ModelOptions options = test::tiny_options(DType::kF32, batch);
  TestModel training(test::tiny_config(), options);
  const double loss = training.loss_and_gradients(batch);
  EXPECT_EQ(training.loss(batch), loss);
  options.training = false;
  TestModel evaluating(test::tiny_config(), options);
  EXPECT_EQ(evaluating.loss(batch), loss);
}

TEST(Model, PlanCountsTheBytesItAllocates) {
  const OwnedBatch batch = test::random_batch(2, 13, true, 8);
  for (const model::Recompute level :
       {model::Recompute::kNone, model::Recompute::kNorms, model::Recompute::kLayer}) {
    model::ActivationOptions options{.dtype = DType::kBF16, .max_tokens = 26, .recompute = level};
    const model::ActivationPlan plan = model::plan_activations(test::tiny_config(), options);
    std::size_t sum = 0;
    for (const model::PlanPart& part : plan.parts) sum += part.bytes;
    EXPECT_EQ(sum, plan.total_bytes);
    std::vector<std::byte> memory(plan.total_bytes);
    const model::Activations acts =
        model::bind_activations(test::tiny_config(), options, memory.data(), 26);
    const auto* end = static_cast<const std::byte*>(acts.delta.data) + acts.delta.bytes();
    EXPECT_LE(end, memory.data() + memory.size());
  }
}

TEST(Sample, GreedyTakesTheLowestIdAmongEqualLogits) {
  const std::vector<float> logits{1, 3, 3, 2};
  EXPECT_EQ(model::sample_token(logits, {.temperature = 0}, 0), 1);
  EXPECT_EQ(model::sample_token(logits, {.top_k = 1}, 5), 1);
  EXPECT_EQ(model::sample_token(logits, {.top_p = 1e-9}, 5), 1);
}

TEST(Sample, FollowsTheProbabilities) {
  const std::vector<float> logits{0, std::log(2.0F), std::log(5.0F)};
  std::vector<int> counts(3);
  for (std::uint64_t i = 0; i < 8000; ++i) ++counts[model::sample_token(logits, {.seed = 3}, i)];
  EXPECT_NEAR(counts[0], 1000, 150);
  EXPECT_NEAR(counts[1], 2000, 200);
  EXPECT_NEAR(counts[2], 5000, 250);
  for (std::uint64_t i = 0; i < 500; ++i) {
    EXPECT_NE(model::sample_token(logits, {.top_k = 2}, i), 0);
    EXPECT_EQ(model::sample_token(logits, {.top_p = 0.6}, i), 2);
  }
}

TEST(Generate, IsRepeatableAndStopsAtTheContextsEnd) {
  const OwnedBatch batch = test::random_batch(1, 16, false, 8);
  model::ModelOptions options = test::tiny_options(DType::kF32, batch);
  options.training = false;
  TestModel t(test::tiny_config(), options);
  const auto run = [&](std::uint64_t seed) {
    return model::generate(
        t.model, {2, 10, 11}, {.seed = seed, .max_new_tokens = 100}, [](std::int32_t) {
          return true;
        });
  };
  const auto first = run(1);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
  EXPECT_LE(first.size(), 13U);
}

}  // namespace
}  // namespace g2
