// A small training state with values that depend on the step, and ways to check it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/parameter_table.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_store.h"

namespace g2::train {

inline model::Gemma2Config tiny_config() {
  model::Gemma2Config c;
  c.vocab_size = 7;
  c.hidden_size = 4;
  c.intermediate_size = 6;
  c.num_hidden_layers = 1;
  c.num_attention_heads = 2;
  c.num_key_value_heads = 1;
  c.head_dim = 2;
  return c;
}

inline constexpr std::array<const char*, 3> kKinds = {"master", "m", "v"};

struct TinyRun {
  model::Gemma2Config config = tiny_config();
  model::ParameterTable table{config};
  std::array<std::vector<float>, 3> flat;

  explicit TinyRun(std::int64_t step = 0) { set_step(step); }

  static float value(std::int64_t step, std::size_t kind, std::int64_t i) {
    return static_cast<float>(step * 1000 + static_cast<std::int64_t>(kind) * 300 + i) / 7;
  }
  void set_step(std::int64_t step) {
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      flat[kind].resize(static_cast<std::size_t>(table.flat_size()));
      for (std::int64_t i = 0; i < table.flat_size(); ++i) flat[kind][i] = value(step, kind, i);
    }
  }
  std::vector<CheckpointRange> ranges() {
    std::vector<CheckpointRange> all;
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
      const auto some = flat_ranges(table, kKinds[kind], flat[kind].data(), DType::kF32);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  CheckpointInfo info(std::int64_t step) const {
    CheckpointInfo info;
    info.step = step;
    info.tokens = step * 10;
    info.cursor = step * 2;
    info.seed = 0xfedcba9876543210;
    info.model = config;
    info.run_id = "run-a";
    return info;
  }
  void save(CheckpointStore& store, std::int64_t step) {
    set_step(step);
    store.save(info(step), table, ranges());
  }
};

// The checkpoint holds exactly the state of `step`.
inline void expect_state_of(const std::filesystem::path& checkpoint, std::int64_t step) {
  const Checkpoint read(checkpoint);
  EXPECT_EQ(read.info().step, step);
  TinyRun got(step + 1);
  read.read_into(got.ranges());
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    for (const model::Parameter& p : got.table.parameters()) {
      for (std::int64_t i = p.offset; i < p.offset + p.count; ++i) {
        ASSERT_EQ(got.flat[kind][i], TinyRun::value(step, kind, i)) << p.name;
      }
    }
  }
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace g2::train
