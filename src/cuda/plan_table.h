// Which cuBLASLt algorithm each matrix product uses: chosen once, kept in a file, so that a resumed
// run computes the same bits.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace g2::cuda {

// A product c [m, n] (+)= op(a) [m, k] op(b) [k, n] by what its algorithm may depend on.
struct PlanKey {
  DType in = DType::kF32;
  DType out = DType::kF32;
  bool a_transposed = false;
  bool b_transposed = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_ld = 0, b_ld = 0, c_ld = 0;
  std::int64_t alignment = 0;  // bytes, of all pointers
  auto operator<=>(const PlanKey&) const = default;
};

// cuBLASLt's description of an algorithm: opaque, for one version of the library and one GPU model.
using Algorithm = std::array<std::uint64_t, 8>;

class PlanTable {
 public:
  // The table of a library version (cublasLtGetVersion) and GPU model ("NVIDIA H200").
  PlanTable(std::uint64_t library, std::string gpu) : library_(library), gpu_(std::move(gpu)) {}

  std::optional<Algorithm> find(const PlanKey& key) const;
  void set(const PlanKey& key, const Algorithm& algorithm) { plans_[key] = algorithm; }
  std::size_t size() const { return plans_.size(); }

  // JSON text:
  //   {"cublaslt": 130001, "gpu": "NVIDIA H200", "plans": [{"in": "bf16", "out": "f32",
  //    "trans": "nt", "mnk": [..], "ld": [..], "alignment": 16, "algorithm": ["0x..", ..]}, ..]}
  std::string to_json() const;
  // Adds the plans of such a text; plans of another library version or GPU are left out (false).
  // Throws DataError "source: reason" when it is not such a text.
  bool add_json(std::string_view text, std::string_view source);

 private:
  std::uint64_t library_;
  std::string gpu_;
  std::map<PlanKey, Algorithm> plans_;
};

}  // namespace g2::cuda
