// An NVIDIA GPU as a Device: its memory, and the one stream on which all work is ordered.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <optional>
#include <string>

#include "tensor/device.h"

namespace g2::cuda {

// Why GPU `index` cannot be used, as a message that says what to do, or nothing. Never throws: on a
// machine without GPU or driver it says so.
std::optional<std::string> why_unusable(int index);

// Used from one thread, the one that made it: CUDA's current device belongs to the thread.
class CudaDevice final : public Device {
 public:
  // Throws DeviceError with why_unusable().
  explicit CudaDevice(int index = 0);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  cudaStream_t stream() const { return stream_; }
  const std::string& model() const { return model_; }     // "NVIDIA H200"
  int compute_capability() const { return capability_; }  // 90 for 9.0

  std::string name() const override;  // "NVIDIA H200 (cuda:0)"
  double peak_flops() const override;
  MemoryInfo memory() const override;
  void* allocate(std::size_t bytes) override;
  void deallocate(void* data) noexcept override;
  // Goes through pinned memory: returns when `host` may be reused, not when the copy has arrived.
  void copy_from_host(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void fill_zero(void* data, std::size_t bytes) override;
  // Throws DeviceError when any work issued before has failed.
  void synchronize() override;

 private:
  // Pinned memory on its way to or from the GPU; free again after the event.
  struct Stage {
    std::byte* memory = nullptr;
    cudaEvent_t event = nullptr;
  };

  int index_;
  std::string model_;
  int capability_ = 0;
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  std::array<Stage, 2> stages_;
  std::size_t next_stage_ = 0;
};

}  // namespace g2::cuda
