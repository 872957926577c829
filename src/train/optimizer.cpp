#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace g2::train {
namespace {

std::int64_t norm_blocks(const model::ParameterTable& table) {
  return (table.flat_size() + kNormBlock - 1) / kNormBlock;
}

std::vector<double> to_host(Device& device, const Tensor& t) {
  std::vector<double> values(static_cast<std::size_t>(t.size()));
  if (t.dtype == DType::kF64) {
    device.copy_to_host(values.data(), t.data, t.bytes());
  } else {
    std::vector<float> narrow(values.size());
    device.copy_to_host(narrow.data(), t.data, t.bytes());
    values.assign(narrow.begin(), narrow.end());
  }
  return values;
}

}  // namespace

std::size_t Optimizer::bytes(const model::ParameterTable& table, DType dtype) {
  return 2 * static_cast<std::size_t>(table.flat_size()) * dtype_bytes(work_dtype(dtype));
}

Optimizer::Optimizer(model::Model& model, const config::OptimizerSettings& settings)
    : model_(model), settings_(settings) {
  const model::ParameterTable& table = model.table();
  const DType acc = model.master().dtype;
  const std::size_t moments = bytes(table, acc);
  const std::int64_t blocks = norm_blocks(table);
  memory_ = Buffer(model.device(), moments + static_cast<std::size_t>(blocks + 2) * sizeof(double));
  model.device().fill_zero(memory_.data(), memory_.bytes());
  m_ = Tensor(memory_.data(), acc, {table.flat_size()});
  v_ = Tensor(memory_.data() + moments / 2, acc, {table.flat_size()});
  auto* doubles = reinterpret_cast<double*>(memory_.data() + moments);
  block_sums_ = Tensor(doubles, DType::kF64, {blocks});
  norm_ = Tensor(doubles + blocks, DType::kF64, {1});
  factor_ = Tensor(doubles + blocks + 1, DType::kF64, {1});
}

double Optimizer::gradient_norm() {
  Ops& ops = model_.ops();
  ops.block_sums_of_squares({.x = model_.grads(), .block_sums = block_sums_});
  ops.clip_factor({.block_sums = block_sums_,
                   .max_norm = settings_.grad_clip,
                   .norm = norm_,
                   .factor = factor_});
  return to_host(model_.device(), norm_)[0];
}

void Optimizer::update(double learning_rate, std::int64_t update) {
  for (const model::DecayRange& range : model_.table().decay_ranges(settings_.decay_embedding)) {
    const Tensor& copy = model_.compute_copy();
    model_.ops().adamw({.master = model_.master().rows(range.begin, range.end),
                        .m = m_.rows(range.begin, range.end),
                        .v = v_.rows(range.begin, range.end),
                        .grad = model_.grads().rows(range.begin, range.end),
                        .copy = copy ? copy.rows(range.begin, range.end) : Tensor(),
                        .factor = factor_,
                        .learning_rate = learning_rate,
                        .beta1 = settings_.beta1,
                        .beta2 = settings_.beta2,
                        .eps = settings_.eps,
                        .weight_decay = range.decays ? settings_.weight_decay : 0,
                        .step = update});
  }
}

std::optional<std::string> Optimizer::nonfinite_weight() {
  return nonfinite_element(model_.master(), Search::kUpwards);
}

// The table is in the order of the forward pass: the highest tensor was reached first.
std::optional<std::string> Optimizer::nonfinite_gradient() {
  return nonfinite_element(model_.grads(), Search::kDownwards);
}

// Block sums tell which blocks to read, so that this costs little of a large model.
std::optional<std::string> Optimizer::nonfinite_element(const Tensor& flat, Search direction) {
  model_.ops().block_sums_of_squares({.x = flat, .block_sums = block_sums_});
  const std::vector<double> sums = to_host(model_.device(), block_sums_);
  const auto first_in = [&](const model::Parameter& p) -> std::optional<std::string> {
    for (std::int64_t block = p.offset / kNormBlock; block * kNormBlock < p.offset + p.count;
         ++block) {
      if (std::isfinite(sums[static_cast<std::size_t>(block)])) continue;
      const std::int64_t begin = std::max(block * kNormBlock, p.offset);
      const std::int64_t end = std::min((block + 1) * kNormBlock, p.offset + p.count);
      const std::vector<double> values = to_host(model_.device(), flat.rows(begin, end));
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i])) continue;
        const std::int64_t index = begin - p.offset + static_cast<std::int64_t>(i);
        return base::cat(p.name, "[", index, "] is ", base::number_text(values[i]));
      }
    }
    return std::nullopt;
  };
  const std::vector<model::Parameter>& all = model_.table().parameters();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto found = first_in(all[direction == Search::kUpwards ? i : all.size() - 1 - i]);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace g2::train
