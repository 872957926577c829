// Must catch: any term of the backward pass missing or wrong: softcap Jacobians, window and
// document masks, grouped heads, both parts of the tied gradient, padding id, norms in place, 1 +
// w.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/model/tiny_model.h"

namespace g2 {
namespace {

using test::OwnedBatch;
using test::TestModel;

constexpr double kRelativeError = 1e-6;

// Five-point central difference: error h^4 f^(5) / 30, rounding about 1e-16 / h.
double directional_difference(TestModel& t,
                              const OwnedBatch& batch,
                              const model::Parameter& p,
                              const std::vector<double>& direction) {
  constexpr double kStep = 1e-3;
  std::vector<double> saved(direction.size());
  for (std::size_t i = 0; i < saved.size(); ++i)
    saved[i] = t.get(p.offset + static_cast<std::int64_t>(i));
  const auto loss_at = [&](double step) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      t.set(p.offset + static_cast<std::int64_t>(i), saved[i] + step * direction[i]);
    }
    return t.loss(batch);
  };
  const double difference =
      8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep));
  loss_at(0);
  return difference / (12 * kStep);
}

// Along the gradient itself plus an equally long random part, so the derivative cannot be tiny by
// chance and every element takes part.
// Without a padding id: its row gets no gradient from the lookup although the loss depends on it.
void check_every_tensor(model::Gemma2Config config, const OwnedBatch& batch) {
  config.pad_token_id = -1;
  model::ModelOptions options = test::tiny_options(DType::kF64, batch);
  TestModel t(config, options);
  t.loss_and_gradients(batch);
  const std::vector<double> gradient = t.gradients();
  std::mt19937_64 rng(3);
  for (const model::Parameter& p : t.model.table().parameters()) {
    double norm = 0;
    for (std::int64_t i = 0; i < p.count; ++i)
      norm += gradient[p.offset + i] * gradient[p.offset + i];
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0) << p.name;
    for (int trial = 0; trial < 3; ++trial) {
      const std::vector<double> noise =
          test::normal<double>(rng, p.count, 1 / std::sqrt(static_cast<double>(p.count)));
      std::vector<double> direction(p.count);
      double expected = 0;
      for (std::int64_t i = 0; i < p.count; ++i) {
        direction[i] = gradient[p.offset + i] / norm + noise[i];
        expected += direction[i] * gradient[p.offset + i];
      }
      const double measured = directional_difference(t, batch, p, direction);
      EXPECT_NEAR(measured / expected, 1, kRelativeError) << p.name << ", trial " << trial;
    }
  }
}

TEST(Gradients, MatchFiniteDifferencesPacked) {
  check_every_tensor(test::tiny_config(), test::random_batch(2, 13, true, 1));
}

TEST(Gradients, MatchFiniteDifferencesUnpacked) {
  check_every_tensor(test::tiny_config(), test::random_batch(2, 13, false, 2));
}

TEST(Gradients, MatchFiniteDifferencesForOtherHeads) {
  for (const auto& [heads, kv_heads] : std::map<int, int>{{3, 1}, {4, 4}, {8, 2}}) {
    SCOPED_TRACE(testing::Message() << heads << " heads, " << kv_heads << " kv heads");
    model::Gemma2Config c = test::tiny_config();
    c.num_attention_heads = heads;
    c.num_key_value_heads = kv_heads;
    check_every_tensor(c, test::random_batch(1, 11, true, 3));
  }
}

TEST(Gradients, MatchFiniteDifferencesWithoutCapsWindowAndTying) {
  model::Gemma2Config c = test::tiny_config();
  c.attn_logit_softcapping = 0;
  c.final_logit_softcapping = 0;
  c.sliding_window = 0;
  c.tie_word_embeddings = false;
  check_every_tensor(c, test::random_batch(2, 9, true, 4));
}

TEST(Gradients, PaddingIdGetsNoGradientFromTheInputSide) {
  const OwnedBatch batch = test::random_batch(2, 13, true, 1);
  model::Gemma2Config c = test::tiny_config();
  c.tie_word_embeddings = false;
  TestModel t(c, test::tiny_options(DType::kF64, batch));
  t.loss_and_gradients(batch);
  const model::Parameter& p = t.model.table().at("model.embed_tokens.weight");
  for (std::int64_t i = 0; i < c.hidden_size; ++i) EXPECT_EQ(t.grad(p.offset + i), 0);
  double other = 0;
  for (std::int64_t i = 0; i < c.hidden_size; ++i)
    other += std::abs(t.grad(p.offset + 2 * c.hidden_size + i));
  EXPECT_GT(other, 0);  // BOS, id 2, has one
}

}  // namespace
}  // namespace g2
