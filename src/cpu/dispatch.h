// From a tensor's dtype to a template argument, and the checks every op makes.
#pragma once

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tensor/ops.h"

namespace g2::cpu {

// Calls body.template operator()<T>() with T = double, float or bf16.
template <typename Body>
void for_dtype(const char* op, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kBF16:
      return body.template operator()<bf16>();
    case DType::kI32:
      break;
  }
  throw base::DeviceError(base::cat(op, ": no kernel for ", dtype_name(dtype)));
}

// Throws DeviceError "op: what; got shapes" unless `holds`.
template <typename... Tensors>
void require(bool holds, const char* op, const char* what, const Tensors&... tensors) {
  if (holds) return;
  std::string message = base::cat(op, ": ", what, "; got");
  ((message += base::cat(" ", tensors.describe())), ...);
  throw base::DeviceError(message);
}

// Throws DeviceError unless every tensor that is given holds elements of type `dtype`.
template <typename... Tensors>
void require_dtype(const char* op, DType dtype, const Tensors&... tensors) {
  require(((!tensors || tensors.dtype == dtype) && ...),
          op,
          base::cat("expected ", dtype_name(dtype)).c_str(),
          tensors...);
}

// Rows of elementwise work a task takes: about 64 KiB, whatever the thread count.
inline std::int64_t rows_per_task(std::int64_t width) {
  const std::int64_t rows = 16384 / (width > 0 ? width : 1);
  return rows > 0 ? rows : 1;
}

}  // namespace g2::cpu
