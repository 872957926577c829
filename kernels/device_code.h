// Whether this binary holds code for the current device.
#pragma once

#include <cuda_runtime.h>

namespace g2::kernels {

// cudaSuccess; cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction or
// cudaErrorUnsupportedPtxVersion when there is none that runs; another error when no device can be
// asked.
cudaError_t find_device_code();

}  // namespace g2::kernels
