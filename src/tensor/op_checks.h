// The checks every implementation of Ops makes of its arguments.
#pragma once

#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tensor/tensor.h"

namespace g2 {

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

}  // namespace g2
