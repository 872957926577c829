// From CUDA's status codes to errors.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

namespace g2::cuda {

// Throws DeviceError "what: reason" unless `status` is success; HardwareSuspect when the GPU's
// memory is at fault.
void check(cudaError_t status, std::string_view what);

}  // namespace g2::cuda
