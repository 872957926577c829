#include "kernels/device_code.h"

namespace g2::kernels {
namespace {

__global__ void empty_kernel() {}

}  // namespace

cudaError_t find_device_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, empty_kernel);
}

}  // namespace g2::kernels
