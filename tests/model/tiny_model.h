// A model small enough for finite differences, in which every rule of Gemma 2 makes a difference:
// hidden size not heads x head_dim and no perfect square, a query scale unlike head_dim, grouped
// heads, window < T, caps small enough to bite, packed documents, padding and ignored targets.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "model/model.h"
#include "tests/support/support.h"

namespace g2::test {

inline model::Gemma2Config tiny_config(int layers = 2) {
  model::Gemma2Config c;
  c.vocab_size = 97;
  c.hidden_size = 40;
  c.intermediate_size = 56;
  c.num_hidden_layers = layers;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 8;
  c.query_pre_attn_scalar = 10;
  c.rms_norm_eps = 1e-6;
  c.rope_theta = 10000;
  c.sliding_window = 5;
  c.attn_logit_softcapping = 3;
  c.final_logit_softcapping = 4;
  c.tie_word_embeddings = true;
  c.initializer_range = 0.25;
  c.pad_token_id = 0;
  c.bos_token_id = 2;
  c.eos_token_ids = {1};
  c.max_position_embeddings = 64;
  return c;
}

struct OwnedBatch {
  std::int64_t rows = 0, seq_len = 0;
  std::vector<std::int32_t> ids, targets, positions, lo;

  model::MicroBatch view(std::int64_t first_row = 0, std::int64_t row_count = -1) const {
    const std::int64_t count = row_count < 0 ? rows - first_row : row_count;
    const auto begin = static_cast<std::size_t>(first_row * seq_len);
    const auto size = static_cast<std::size_t>(count * seq_len);
    relative_lo_.assign(lo.begin() + static_cast<std::ptrdiff_t>(begin),
                        lo.begin() + static_cast<std::ptrdiff_t>(begin + size));
    for (std::int32_t& value : relative_lo_) value -= static_cast<std::int32_t>(begin);
    return {.rows = count,
            .seq_len = seq_len,
            .ids = std::span(ids).subspan(begin, size),
            .targets = std::span(targets).subspan(begin, size),
            .positions = std::span(positions).subspan(begin, size),
            .lo = relative_lo_};
  }
  std::int64_t valid_targets() const {
    std::int64_t count = 0;
    for (const std::int32_t t : targets) count += t != kIgnoredTarget ? 1 : 0;
    return count;
  }

 private:
  mutable std::vector<std::int32_t> relative_lo_;
};

// Rows of random ids; documents of random lengths inside each row when `packed`; about one target
// in six ignored, and never a target across a document's end; one padding id in the first row.
inline OwnedBatch random_batch(std::int64_t rows,
                               std::int64_t seq_len,
                               bool packed,
                               std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  OwnedBatch b;
  b.rows = rows;
  b.seq_len = seq_len;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t start = 0;
    for (std::int64_t t = 0; t < seq_len; ++t) {
      if (packed && t > start + 2 && rng() % 5 == 0) start = t;
      b.ids.push_back(t == start ? 2 : static_cast<std::int32_t>(3 + rng() % 94));
      b.positions.push_back(static_cast<std::int32_t>(t - start));
      b.lo.push_back(static_cast<std::int32_t>(r * seq_len + start));
    }
  }
  b.ids[static_cast<std::size_t>(seq_len / 2)] = 0;
  for (std::size_t n = 0; n < b.ids.size(); ++n) {
    const bool ends = n + 1 == b.ids.size() || b.lo[n + 1] != b.lo[n];
    b.targets.push_back(ends || rng() % 6 == 0 ? kIgnoredTarget : b.ids[n + 1]);
  }
  return b;
}

struct TestModel {
  cpu::CpuDevice device;
  cpu::CpuOps ops;
  model::Model model;

  TestModel(const model::Gemma2Config& config, model::ModelOptions options, int threads = 1)
      : device(threads), ops(device.pool()), model(config, device, ops, options) {
    model.initialise(7);
    randomise_norms();
  }

  // Norm weights start at 0, where a missing 1 + w or a wrong gradient of w would not show.
  void randomise_norms() {
    std::mt19937_64 rng(11);
    std::normal_distribution<double> distribution(0, 0.3);
    for (const model::Parameter& p : model.table().parameters()) {
      if (p.init_std_dev > 0) continue;
      for (std::int64_t i = 0; i < p.count; ++i) set(p.offset + i, distribution(rng));
    }
    model.refresh_compute_weights();
  }

  double get(std::int64_t i) const { return read(model.master(), i); }
  double grad(std::int64_t i) const { return read(model.grads(), i); }
  void set(std::int64_t i, double value) {
    if (model.master().dtype == DType::kF64) {
      model.master().as<double>()[i] = value;
    } else {
      model.master().as<float>()[i] = static_cast<float>(value);
    }
  }
  std::vector<double> gradients() const {
    std::vector<double> values(static_cast<std::size_t>(model.table().flat_size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = grad(static_cast<std::int64_t>(i));
    return values;
  }

  double loss(const OwnedBatch& batch) {
    model.begin_sums();
    model.forward_loss(batch.view());
    return model.read_sums().loss / static_cast<double>(batch.valid_targets());
  }
  double loss_and_gradients(const OwnedBatch& batch) {
    model.begin_sums();
    const auto valid = static_cast<double>(batch.valid_targets());
    model.forward_backward(batch.view(), 1 / valid, true);
    return model.read_sums().loss / valid;
  }

 private:
  static double read(const Tensor& t, std::int64_t i) {
    return t.dtype == DType::kF64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
  }
};

inline model::ModelOptions tiny_options(DType dtype, const OwnedBatch& batch) {
  return {.dtype = dtype,
          .max_tokens = batch.rows * batch.seq_len,
          .max_positions = batch.seq_len,
          .lm_head_buffer_bytes = 4096};
}

}  // namespace g2::test
