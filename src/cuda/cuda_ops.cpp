#include "cuda/cuda_ops.h"

namespace g2::cuda {

CudaOps::CudaOps(CudaDevice& device, std::filesystem::path plan_file)
    : device_(device), matmul_(device, std::move(plan_file)) {}

void CudaOps::grow(Buffer& buffer, std::size_t bytes) {
  if (buffer.bytes() >= bytes) return;
  buffer.reset();  // frees before it allocates; cudaFree waits for work in flight
  buffer = Buffer(device_, bytes);
}

}  // namespace g2::cuda
