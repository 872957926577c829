#include "model/micro_batch.h"

#include <algorithm>
#include <cassert>

namespace g2::model {
namespace {

// ids, targets, positions, 2 x (lo, hi), group ids, begin, rows, rows with a target
constexpr std::int64_t kArrays = 11;

std::vector<std::int32_t> rows_with_target(std::span<const std::int32_t> targets) {
  std::vector<std::int32_t> rows;
  for (std::size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] != kIgnoredTarget) rows.push_back(static_cast<std::int32_t>(n));
  }
  return rows;
}

}  // namespace

HostRowGroups group_rows_by_id(std::span<const std::int32_t> ids, std::int64_t skip_id) {
  HostRowGroups groups;
  for (std::size_t n = 0; n < ids.size(); ++n) {
    if (ids[n] != skip_id) groups.rows.push_back(static_cast<std::int32_t>(n));
  }
  std::stable_sort(groups.rows.begin(), groups.rows.end(), [&](std::int32_t a, std::int32_t b) {
    return ids[a] < ids[b];
  });
  for (std::size_t k = 0; k < groups.rows.size(); ++k) {
    const std::int32_t id = ids[groups.rows[k]];
    if (groups.ids.empty() || groups.ids.back() != id) {
      groups.ids.push_back(id);
      groups.begin.push_back(static_cast<std::int32_t>(k));
    }
  }
  groups.begin.push_back(static_cast<std::int32_t>(groups.rows.size()));
  return groups;
}

std::vector<std::int32_t> windowed_lo(std::span<const std::int32_t> lo, std::int64_t window) {
  std::vector<std::int32_t> out(lo.begin(), lo.end());
  if (window <= 0) return out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) - window + 1;
    out[i] = std::max(out[i], static_cast<std::int32_t>(std::max<std::int64_t>(first, 0)));
  }
  return out;
}

std::vector<std::int32_t> mirror_hi(std::span<const std::int32_t> lo) {
  std::vector<std::int32_t> hi(lo.size());
  std::size_t i = 0;
  for (std::size_t j = 0; j < lo.size(); ++j) {
    i = std::max(i, j);
    while (i + 1 < lo.size() && static_cast<std::size_t>(lo[i + 1]) <= j) ++i;
    hi[j] = static_cast<std::int32_t>(i);
  }
  return hi;
}

BatchInputs::BatchInputs(Device& device, std::int64_t max_tokens)
    : device_(device), buffer_(device, bytes(max_tokens)) {}

std::size_t BatchInputs::bytes(std::int64_t max_tokens) {
  return static_cast<std::size_t>(kArrays * max_tokens + 1) * sizeof(std::int32_t);
}

void BatchInputs::upload(const MicroBatch& batch, std::int64_t window, std::int64_t skip_id) {
  assert(bytes(batch.tokens()) <= buffer_.bytes());
  staging_.clear();
  const auto put = [&](std::span<const std::int32_t> values) {
    const std::int64_t offset = static_cast<std::int64_t>(staging_.size());
    staging_.insert(staging_.end(), values.begin(), values.end());
    return Tensor(buffer_.data() + offset * static_cast<std::int64_t>(sizeof(std::int32_t)),
                  DType::kI32,
                  {static_cast<std::int64_t>(values.size())});
  };
  ids = put(batch.ids);
  targets = put(batch.targets);
  positions = put(batch.positions);
  full = {put(batch.lo), put(mirror_hi(batch.lo))};
  const std::vector<std::int32_t> lo = windowed_lo(batch.lo, window);
  sliding = {put(lo), put(mirror_hi(lo))};
  const HostRowGroups host = group_rows_by_id(batch.ids, skip_id);
  groups.groups = static_cast<std::int64_t>(host.ids.size());
  groups.ids = put(host.ids);
  groups.begin = put(host.begin);
  groups.rows = put(host.rows);
  target_rows = put(rows_with_target(batch.targets));
  device_.copy_from_host(buffer_.data(), staging_.data(), staging_.size() * sizeof(std::int32_t));
}

}  // namespace g2::model
