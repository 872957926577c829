#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "tensor/ops_debug.h"

namespace g2 {
namespace {

using base::cat;

constexpr double kBoundBf16 = 1e-2;      // unit roundoff 2^-8, several roundings
constexpr double kBoundF32 = 1e-5;       // unit roundoff 6e-8, sums over thousands of elements
constexpr double kBoundF64 = 1e-12;      // unit roundoff 1.1e-16, likewise
constexpr double kBoundIntegers = 1e-2;  // a tie may fall either way
// Scratch given as i32 holds values of the compute type, at most four times wider in f64.
constexpr std::int64_t kScratchGrowth = 4;

double bound_of(const OpCall& call, const Tensor& output) {
  if (output.dtype == DType::kI32) return kBoundIntegers;
  double bound = kBoundF64;
  for (const TensorSlot& slot : call.tensors) {
    if (slot.tensor->dtype == DType::kBF16) bound = std::max(bound, kBoundBf16);
    if (slot.tensor->dtype == DType::kF32) bound = std::max(bound, kBoundF32);
  }
  return bound;
}

double relative_error(const std::vector<double>& ours, const std::vector<double>& reference) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    difference += (ours[i] - reference[i]) * (ours[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

double differing_share(const std::vector<double>& ours, const std::vector<double>& reference) {
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) differing += ours[i] != reference[i] ? 1 : 0;
  return ours.empty() ? 0 : static_cast<double>(differing) / static_cast<double>(ours.size());
}

// The same shape in f64 (integers stay), in memory of its own.
Tensor reference_twin(Device& device, const TensorSlot& slot, Buffer& memory) {
  Tensor twin = *slot.tensor;
  if (twin.dtype != DType::kI32) {
    twin.dtype = DType::kF64;
  } else if (slot.role == Role::kScratch) {
    twin = Tensor(nullptr, DType::kI32, {twin.size() * kScratchGrowth});
  }
  memory = Buffer(device, std::max<std::size_t>(twin.bytes(), 1));
  twin.data = memory.data();
  return twin;
}

}  // namespace

VerifyOps::VerifyOps(std::unique_ptr<Ops> inner,
                     Device& device,
                     Ops& reference,
                     Device& reference_device)
    : OpsDecorator(std::move(inner), device),
      reference_(reference),
      reference_device_(reference_device) {}

void VerifyOps::around(const OpCall& call) {
  const std::size_t count = call.tensors.size();
  std::vector<Buffer> memory(count);
  std::vector<Tensor> watched(count);
  std::vector<Tensor> twins(count);
  for (std::size_t i = 0; i < count; ++i) {
    const TensorSlot& slot = call.tensors[i];
    watched[i] = *slot.tensor;
    twins[i] = reference_twin(reference_device_, slot, memory[i]);
    if (is_read(slot.role)) {
      write_values(reference_device_, twins[i], read_values(device(), watched[i]));
    }
  }
  call.run(inner());
  for (std::size_t i = 0; i < count; ++i) *call.tensors[i].tensor = twins[i];
  call.run(reference_);
  for (std::size_t i = 0; i < count; ++i) *call.tensors[i].tensor = watched[i];
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_written(call.tensors[i].role)) continue;
    compare(call,
            call.tensors[i].name,
            watched[i],
            read_values(device(), watched[i]),
            read_values(reference_device_, twins[i]));
  }
  ++verdicts_[std::string(call.op)].calls;
}

void VerifyOps::compare(const OpCall& call,
                        std::string_view tensor,
                        const Tensor& shape,
                        const std::vector<double>& ours,
                        const std::vector<double>& reference) {
  const bool integers = shape.dtype == DType::kI32;
  const double error =
      integers ? differing_share(ours, reference) : relative_error(ours, reference);
  const double bound = bound_of(call, shape);
  OpVerdict& verdict = verdicts_[std::string(call.op)];
  const bool failed = !(error <= bound);
  const bool seen_nan = std::isnan(verdict.worst);
  if (verdict.tensor.empty() || (!seen_nan && !(error / bound <= verdict.worst))) {
    verdict.worst = error / bound;
    verdict.error = error;
    verdict.bound = bound;
    verdict.tensor = tensor;
  }
  if (!failed) return;
  ++verdict.failed;
  if (first_failure_) return;
  first_failure_ = cat("call ",
                       call.number,
                       ", ",
                       call.op,
                       ": ",
                       tensor,
                       " differs from the f64 reference by ",
                       base::number_text(error),
                       ", the bound is ",
                       base::number_text(bound),
                       " (",
                       call.describe(),
                       ")");
}

std::string VerifyOps::table() const {
  std::string text =
      "op                        calls  worst error     bound  of           verdict\n";
  for (const auto& [op, v] : verdicts_) {
    char line[160];
    std::snprintf(line,
                  sizeof(line),
                  "%-22s %8lld    %9.2e  %8.0e  %-12s %s\n",
                  op.c_str(),
                  static_cast<long long>(v.calls),
                  v.error,
                  v.bound,
                  v.tensor.c_str(),
                  v.failed == 0 ? "ok" : "FAILED");
    text += line;
  }
  return text;
}

void VerifyOps::check() const {
  if (first_failure_) throw base::DeviceError(*first_failure_);
}

}  // namespace g2
