// What a forward pass reads: token ids, targets, positions and attention intervals of a few rows,
// and their form on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/device.h"
#include "tensor/ops.h"

namespace g2::model {

// Host view of `rows` sequences of `seq_len` tokens on one flat token axis, N = rows * seq_len.
struct MicroBatch {
  std::int64_t rows = 0;
  std::int64_t seq_len = 0;
  std::span<const std::int32_t> ids;        // [N]
  std::span<const std::int32_t> targets;    // [N], kIgnoredTarget where there is none
  std::span<const std::int32_t> positions;  // [N], from 0 in each row or document
  std::span<const std::int32_t> lo;  // [N], first token of the same row or document; ascending

  std::int64_t tokens() const { return rows * seq_len; }
};

// Rows n with ids[n] != skip_id, grouped by id in ascending order; within a group rows ascend.
struct HostRowGroups {
  std::vector<std::int32_t> ids, begin, rows;
};
HostRowGroups group_rows_by_id(std::span<const std::int32_t> ids, std::int64_t skip_id);

// lo[i] = max(lo[i], i - window + 1), the query's own key included; window 0: unchanged.
std::vector<std::int32_t> windowed_lo(std::span<const std::int32_t> lo, std::int64_t window);

// hi[j]: the last query i with lo[i] <= j <= i. Requires lo ascending and lo[i] <= i.
std::vector<std::int32_t> mirror_hi(std::span<const std::int32_t> lo);

// The device side: one buffer filled by one copy.
class BatchInputs {
 public:
  BatchInputs(Device& device, std::int64_t max_tokens);
  static std::size_t bytes(std::int64_t max_tokens);

  // Requires batch.tokens() <= max_tokens. `skip_id` gives no embedding gradient (-1: none).
  void upload(const MicroBatch& batch, std::int64_t window, std::int64_t skip_id);

  struct Intervals {
    Tensor lo, hi;  // [N] i32
  };
  Tensor ids, targets, positions;  // [N] i32
  Intervals full, sliding;
  RowGroups groups;
  Tensor target_rows;  // [valid] i32, ascending

 private:
  Device& device_;
  Buffer buffer_;
  std::vector<std::int32_t> staging_;
};

}  // namespace g2::model
