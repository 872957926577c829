#include "tensor/ops_debug.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"

namespace g2 {
namespace {

using base::cat;

std::string json_number(double value) {
  const std::string text = base::number_text(value);
  return std::isfinite(value) ? text : cat('"', text, '"');
}

std::string_view role_name(Role role) {
  if (role == Role::kIn) return "in";
  return role == Role::kOut ? "out" : "inout";
}

std::string trace_entry(Device& device, const TensorSlot& slot) {
  const std::vector<double> values = read_values(device, *slot.tensor);
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  std::string shape;
  for (int i = 0; i < slot.tensor->rank; ++i) shape += cat(i == 0 ? "" : ", ", slot.tensor->dim(i));
  return cat('"',
             slot.name,
             R"(": {"role": ")",
             role_name(slot.role),
             R"(", "dtype": ")",
             dtype_name(slot.tensor->dtype),
             R"(", "shape": [)",
             shape,
             R"(], "sum": )",
             json_number(sum),
             R"(, "l2": )",
             json_number(std::sqrt(squares)),
             values.empty() ? "" : cat(R"(, "first": )", json_number(values[0])),
             "}");
}

// "3, 17" for element `flat` of a row-major tensor.
std::string index_text(const Tensor& tensor, std::int64_t flat) {
  std::string text;
  for (int i = tensor.rank; i-- > 0;) {
    text = cat(flat % tensor.dim(i), text.empty() ? "" : ", ", text);
    flat /= tensor.dim(i);
  }
  return text;
}

}  // namespace

TraceOps::TraceOps(std::unique_ptr<Ops> inner, Device& device, const std::filesystem::path& file)
    : OpsDecorator(std::move(inner), device), path_(file), file_(file) {
  if (!file_) throw base::IoError(cat(path_.string(), ": cannot write the trace there"));
}

void TraceOps::around(const OpCall& call) {
  std::vector<std::string> entries(call.tensors.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorSlot& slot = call.tensors[i];
    if (slot.role == Role::kIn) entries[i] = trace_entry(device(), slot);
  }
  device().synchronize();
  const auto start = std::chrono::steady_clock::now();
  call.run(inner());
  device().synchronize();
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  std::string tensors;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorSlot& slot = call.tensors[i];
    if (slot.role == Role::kScratch) continue;
    if (slot.role != Role::kIn) entries[i] = trace_entry(device(), slot);
    tensors += cat(tensors.empty() ? "" : ", ", entries[i]);
  }
  file_ << R"({"call": )" << call.number << R"(, "op": ")" << call.op << R"(", "tensors": {)"
        << tensors << R"(}, "ms": )" << base::number_text(ms.count()) << "}\n"
        << std::flush;
  if (!file_)
    throw base::IoError(cat(path_.string(), ": cannot write the trace; is the disk full?"));
}

void NanOps::around(const OpCall& call) {
  call.run(inner());
  for (const TensorSlot& slot : call.tensors) {
    if (!is_written(slot.role)) continue;
    const std::vector<double> values = read_values(device(), *slot.tensor);
    const auto bad = std::ranges::find_if(values, [](double v) { return !std::isfinite(v); });
    if (bad == values.end()) continue;
    throw base::NumericError(cat("call ",
                                 call.number,
                                 ", ",
                                 call.op,
                                 ": ",
                                 slot.name,
                                 "[",
                                 index_text(*slot.tensor, bad - values.begin()),
                                 "] is ",
                                 base::number_text(*bad),
                                 ", the first non-finite result of the run (",
                                 call.describe(),
                                 ")"));
  }
}

}  // namespace g2
