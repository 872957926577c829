// From a tensor's dtype to a template argument, and how work is cut into tasks.
#pragma once

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tensor/op_checks.h"
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

// Rows of elementwise work a task takes: about 64 KiB, whatever the thread count.
inline std::int64_t rows_per_task(std::int64_t width) {
  const std::int64_t rows = 16384 / (width > 0 ? width : 1);
  return rows > 0 ? rows : 1;
}

}  // namespace g2::cpu
