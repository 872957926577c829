// From tensors to the arguments of kernels, and from their status to errors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "cuda/status.h"
#include "tensor/op_checks.h"
#include "tensor/ops.h"

namespace g2::cuda {

// Calls body.template operator()<T>() with T = float or __nv_bfloat16.
template <typename Body>
void for_dtype(const char* op, DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body.template operator()<float>();
  if (dtype == DType::kBF16) return body.template operator()<__nv_bfloat16>();
  throw base::DeviceError(base::cat(op,
                                    ": no GPU kernel for ",
                                    dtype_name(dtype),
                                    "; train.precision fp64 needs device.kind cpu"));
}

template <typename T>
T* pointer(const Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

// Throws DeviceError "op: reason; got shapes" unless the kernel was launched.
template <typename... Tensors>
void launched(cudaError_t status, const char* op, const Tensors&... tensors) {
  if (status == cudaSuccess) return;
  std::string what = base::cat(op, " of");
  ((what += base::cat(" ", tensors.describe())), ...);
  check(status, what);
}

}  // namespace g2::cuda
