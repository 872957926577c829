// Decorators for finding where numbers go wrong: TraceOps, NanOps, VerifyOps. Each owns the Ops it
// watches, changes no result, and can be stacked on the others. They copy tensors to the host and
// wait for each call: for debugging, not for speed.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tensor/ops_decorator.h"

namespace g2 {

// Writes one JSON line a call (scripts/diff_traces.py compares two such files):
//   {"call": 3, "op": "linear_forward", "tensors": {"x": {"role": "in", "dtype": "f32",
//    "shape": [64, 40], "sum": ..., "l2": ..., "first": ...}, ...}, "ms": 0.12}
// sum and l2 (the root of the sum of squares) are formed in f64, in order; "first" is element 0.
// Inputs are read before the call, outputs after it; "inout" tensors after it. Scratch is left out.
// A non-finite number is written as a string: "nan", "inf", "-inf".
class TraceOps final : public OpsDecorator {
 public:
  // Replaces the file. Throws IoError when it cannot be written.
  TraceOps(std::unique_ptr<Ops> inner, Device& device, const std::filesystem::path& file);

 private:
  void around(const OpCall& call) override;

  std::filesystem::path path_;
  std::ofstream file_;
};

// Throws NumericError after the first call that writes inf or NaN, naming call, op, tensor, index,
// value and the shapes of all tensors.
class NanOps final : public OpsDecorator {
 public:
  using OpsDecorator::OpsDecorator;

 private:
  void around(const OpCall& call) override;
};

// What was seen of one op, over all its calls.
struct OpVerdict {
  std::int64_t calls = 0;
  std::int64_t failed = 0;  // results beyond their bound
  double worst = 0;         // error as a share of its bound; NaN where a result was not a number
  double error = 0;         // at the worst
  double bound = 0;
  std::string tensor;  // at the worst
};

// Makes every call also on a reference, in f64 and from the same inputs, and compares what was
// written. Errors do not carry over from call to call: each starts from the watched ops' tensors.
// The error of a tensor is ||ours - reference|| / ||reference|| over all its elements, or, of
// integers, the share that differs. The bound is that of the narrowest type among the call's
// tensors, since an op may round to it on the way to any output:
//   bf16 1e-2, f32 1e-5, f64 1e-12;  integers 1e-2.
// Where the watched ops are the reference's own in f64, the check shows repeatability only.
class VerifyOps final : public OpsDecorator {
 public:
  // `reference_device` is where `reference` computes; both live as long as calls are
  // made.
  VerifyOps(std::unique_ptr<Ops> inner, Device& device, Ops& reference, Device& reference_device);

  const std::map<std::string, OpVerdict, std::less<>>& verdicts() const { return verdicts_; }
  // A table, one line an op: calls, worst error, its tensor, bound, verdict.
  std::string table() const;
  // Throws DeviceError naming the first call that failed, if any did.
  void check() const;

 private:
  void around(const OpCall& call) override;
  void compare(const OpCall& call,
               std::string_view tensor,
               const Tensor& shape,
               const std::vector<double>& ours,
               const std::vector<double>& reference);

  Ops& reference_;
  Device& reference_device_;
  std::map<std::string, OpVerdict, std::less<>> verdicts_;
  std::optional<std::string> first_failure_;
};

}  // namespace g2
