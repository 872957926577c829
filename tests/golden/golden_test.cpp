// One training step of small random models against two others' Gemma 2: loss, logits and every
// gradient tensor.
// * golden.json, made by scripts/make_golden.py: Hugging Face transformers in fp32, for head
// layouts
//   like those of 2B, 9B and 27B, windows, groups, caps and tying.
// * oracle.json, made by scripts/make_oracle_golden.py: an oracle in fp64, which leaves no room for
//   a mistake that hides in rounding. G2_ORACLE_GOLDEN names another such file.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/hf_config.h"
#include "tests/model/tiny_model.h"

namespace g2 {
namespace {

using nlohmann::json;

struct Tolerance {
  double loss;          // relative
  double of_norm;       // an element, as a share of its tensor's norm
  double zero_element;  // an element of a gradient that is zero but for rounding
};
// transformers computes in fp32: its own rounding against fp64 is about 1e-6 of a tensor's norm. A
// window of one key has no gradient to q and k; in fp32 dP - delta leaves its rounding there.
constexpr Tolerance kTransformers{2e-6, 1e-5, 3e-8};
constexpr Tolerance kOracle{1e-13, 1e-12, 1e-14};  // sums of thousands of fp64 terms

json read_golden(const std::filesystem::path& path) {
  return json::parse(std::ifstream(path));
}

const json& transformers_cases() {
  static const json file = read_golden(test::source_root() / "tests/golden/golden.json");
  return file["cases"];
}

const json& oracle_cases() {
  static const json file = [] {
    const char* other = std::getenv("G2_ORACLE_GOLDEN");
    return read_golden(other != nullptr ? other : test::source_root() / "tests/golden/oracle.json");
  }();
  return file["cases"];
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

// As scripts/reference_init.py: norm weights from the streams behind those of the parameters.
void initialise(test::TestModel& t, const json& c) {
  const std::uint64_t seed = c["seed"];
  t.model.initialise(seed);
  const auto& parameters = t.model.table().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].init_std_dev > 0) continue;
    t.ops.fill_normal({.y = t.model.master_view(parameters[i]),
                       .seed = seed,
                       .stream = static_cast<std::uint32_t>(i + parameters.size()),
                       .std_dev = c["norm_std"]});
  }
  t.model.refresh_compute_weights();
}

template <typename Get>
void expect_summary(const json& want,
                    const Tolerance& tolerance,
                    std::int64_t count,
                    const Get& get,
                    const std::string& name) {
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += get(i) * get(i);
    sum += get(i);
  }
  const double l2 = want["l2"];
  const double root_count = std::sqrt(static_cast<double>(count));
  const double element = tolerance.of_norm * l2 + tolerance.zero_element;
  EXPECT_NEAR(std::sqrt(squares), l2, tolerance.of_norm * l2 + tolerance.zero_element * root_count)
      << name;
  EXPECT_NEAR(sum, want["sum"].get<double>(), element * root_count) << name;
  for (const json& sample : want["samples"]) {
    EXPECT_NEAR(get(sample[0]), sample[1].get<double>(), element)
        << name << "[" << sample[0] << "]";
  }
}

model::Gemma2Config config_of(const json& c) {
  return model::parse_hf_config(c["model"].dump(), "golden").config;
}

void expect_step(test::TestModel& t, const json& c, const Tolerance& tolerance) {
  const test::OwnedBatch batch = batch_of(c);
  const double loss = t.loss_and_gradients(batch);
  EXPECT_NEAR(loss, c["loss"].get<double>(), tolerance.loss * loss);
  for (const model::Parameter& p : t.model.table().parameters()) {
    expect_summary(
        c["gradients"][p.name],
        tolerance,
        p.count,
        [&](std::int64_t i) { return t.grad(p.offset + i); },
        p.name);
  }
  const std::int64_t tokens = batch.rows * batch.seq_len;
  const std::int64_t vocabulary = t.model.config().vocab_size;
  std::vector<double> memory(static_cast<std::size_t>(tokens * vocabulary));
  const Tensor logits(memory.data(), t.model.master().dtype, {tokens, vocabulary});
  t.model.forward_logits(batch.view(), logits);
  const auto value = [&](std::int64_t i) {
    return logits.dtype == DType::kF64 ? logits.as<double>()[i] : double{logits.as<float>()[i]};
  };
  expect_summary(c["logits"], tolerance, logits.size(), value, "logits");
}

std::string case_name(const json& c) {
  return c["name"].get<std::string>();
}

class Golden : public testing::TestWithParam<std::tuple<std::size_t, DType>> {};

TEST_P(Golden, LossLogitsAndGradientsAreThoseOfTransformers) {
  const json& c = transformers_cases()[std::get<0>(GetParam())];
  test::TestModel t(config_of(c), test::tiny_options(std::get<1>(GetParam()), batch_of(c)));
  initialise(t, c);
  expect_step(t, c, kTransformers);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         Golden,
                         testing::Combine(testing::Range(std::size_t{0},
                                                         transformers_cases().size()),
                                          testing::Values(DType::kF64, DType::kF32)),
                         [](const auto& info) {
                           return case_name(transformers_cases()[std::get<0>(info.param)]) + "_" +
                                  std::string(dtype_name(std::get<1>(info.param)));
                         });

class Oracle : public testing::TestWithParam<std::size_t> {};

TEST_P(Oracle, LossLogitsAndGradientsAreThoseOfTheOracle) {
  const json& c = oracle_cases()[GetParam()];
  test::TestModel t(config_of(c), test::tiny_options(DType::kF64, batch_of(c)));
  initialise(t, c);
  expect_step(t, c, kOracle);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         Oracle,
                         testing::Range(std::size_t{0}, oracle_cases().size()),
                         [](const auto& info) { return case_name(oracle_cases()[info.param]); });

}  // namespace
}  // namespace g2
