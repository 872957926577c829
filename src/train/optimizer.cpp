#include "train/optimizer.h"

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

void Optimizer::update(double learning_rate, std::int64_t step) {
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
                        .step = step});
  }
}

std::optional<std::string> Optimizer::first_nonfinite() const {
  const std::vector<double> sums = to_host(model_.device(), block_sums_);
  for (std::size_t block = 0; block < sums.size(); ++block) {
    if (std::isfinite(sums[block])) continue;
    const auto begin = static_cast<std::int64_t>(block) * kNormBlock;
    const std::int64_t end = std::min(begin + kNormBlock, model_.table().flat_size());
    const std::vector<double> values = to_host(model_.device(), model_.grads().rows(begin, end));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      const std::int64_t flat = begin + static_cast<std::int64_t>(i);
      const model::Parameter* p = model_.table().holding(flat);
      if (p == nullptr) continue;
      return base::cat(p->name, "[", flat - p->offset, "] is ", base::number_text(values[i]));
    }
  }
  return std::nullopt;
}

}  // namespace g2::train
