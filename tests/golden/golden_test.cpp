// One training step of small random models against Hugging Face transformers: loss, logits and
// every gradient tensor, for head layouts like those of 2B, 9B and 27B, windows, groups, caps and
// tying. The expected values are made by scripts/make_golden.py and stored in golden.json.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/hf_config.h"
#include "tests/model/tiny_model.h"

namespace g2 {
namespace {

using nlohmann::json;

// transformers computes in fp32: its own rounding against fp64 is about 1e-6 of a tensor's norm.
constexpr double kLossRelative = 2e-6;
constexpr double kOfTensorNorm = 1e-5;
// A window of one key has no gradient to q and k; in fp32 dP - delta leaves its rounding there.
constexpr double kRoundingOfZero = 3e-8;  // an element

const json& golden() {
  static const json file =
      json::parse(std::ifstream(test::source_root() / "tests/golden/golden.json"));
  return file;
}

std::vector<std::int32_t> integers(const json& values) {
  return values.get<std::vector<std::int32_t>>();
}

test::OwnedBatch batch_of(const json& c) {
  test::OwnedBatch batch;
  batch.rows = c["rows"];
  batch.seq_len = c["seq_len"];
  batch.ids = integers(c["ids"]);
  batch.targets = integers(c["targets"]);
  batch.positions = integers(c["positions"]);
  batch.lo = integers(c["lo"]);
  for (std::size_t n = 0; n < batch.lo.size(); ++n) {  // the file counts from each row's start
    batch.lo[n] += static_cast<std::int32_t>(n / batch.seq_len * batch.seq_len);
  }
  return batch;
}

// As scripts/reference_model.py: norm weights from the streams behind those of the parameters.
void initialise_norms(test::TestModel& t, std::uint64_t seed, double std_dev) {
  const auto& parameters = t.model.table().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].init_std_dev > 0) continue;
    t.ops.fill_normal({.y = t.model.master_view(parameters[i]),
                       .seed = seed,
                       .stream = static_cast<std::uint32_t>(i + parameters.size()),
                       .std_dev = std_dev});
  }
}

// The step in fp64 from the same fp32 weights, so that only transformers' rounding is seen.
void initialise_as_f32(test::TestModel& t, const model::Gemma2Config& config, const json& c) {
  const test::OwnedBatch batch = batch_of(c);
  test::TestModel f32(config, test::tiny_options(DType::kF32, batch));
  f32.model.initialise(c["seed"].get<std::uint64_t>());
  initialise_norms(f32, c["seed"], c["norm_std"]);
  for (std::int64_t i = 0; i < t.model.table().flat_size(); ++i) t.set(i, f32.get(i));
  t.model.refresh_compute_weights();
}

template <typename Get>
void expect_summary(const json& want, std::int64_t count, const Get& get, const std::string& name) {
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += get(i) * get(i);
    sum += get(i);
  }
  const double l2 = want["l2"];
  const double root_count = std::sqrt(static_cast<double>(count));
  const double element = kOfTensorNorm * l2 + kRoundingOfZero;
  EXPECT_NEAR(std::sqrt(squares), l2, kOfTensorNorm * l2 + kRoundingOfZero * root_count) << name;
  EXPECT_NEAR(sum, want["sum"].get<double>(), element * root_count) << name;
  for (const json& sample : want["samples"]) {
    EXPECT_NEAR(get(sample[0]), sample[1].get<double>(), element)
        << name << "[" << sample[0] << "]";
  }
}

class Golden : public testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(Golden, LossLogitsAndGradientsAreThoseOfTransformers) {
  const json& c = golden()["cases"][std::get<0>(GetParam())];
  SCOPED_TRACE(c["name"]);
  const model::Gemma2Config config =
      model::parse_hf_config(c["model"].dump(), "golden.json").config;
  const test::OwnedBatch batch = batch_of(c);
  test::TestModel t(config, test::tiny_options(std::get<1>(GetParam()), batch));
  initialise_as_f32(t, config, c);

  const double loss = t.loss_and_gradients(batch);
  EXPECT_NEAR(loss, c["loss"].get<double>(), kLossRelative * loss);
  for (const model::Parameter& p : t.model.table().parameters()) {
    expect_summary(
        c["gradients"][p.name],
        p.count,
        [&](std::int64_t i) { return t.grad(p.offset + i); },
        p.name);
  }
  const DType acc = work_dtype(std::get<1>(GetParam()));
  std::vector<double> memory(
      static_cast<std::size_t>(batch.rows * batch.seq_len * config.vocab_size));
  const Tensor logits(memory.data(), acc, {batch.rows * batch.seq_len, config.vocab_size});
  t.model.forward_logits(batch.view(), logits);
  const auto value = [&](std::int64_t i) {
    return logits.dtype == DType::kF64 ? logits.as<double>()[i] : double{logits.as<float>()[i]};
  };
  expect_summary(c["logits"], logits.size(), value, "logits");
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         Golden,
                         testing::Combine(testing::Range(std::size_t{0}, golden()["cases"].size()),
                                          testing::Values(DType::kF64, DType::kF32)),
                         [](const auto& info) {
                           const json& c = golden()["cases"][std::get<0>(info.param)];
                           return c["name"].get<std::string>() + "_" +
                                  std::string(dtype_name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace g2
