// The CPU as a Device: ordinary memory, a thread pool, nothing asynchronous.
#pragma once

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace g2::cpu {

class CpuDevice final : public Device {
 public:
  // threads: as base::ThreadPool. Throws DeviceError when the processor lacks instructions this
  // binary's kernels were compiled for.
  explicit CpuDevice(int threads = 0);

  base::ThreadPool& pool() { return pool_; }

  std::string name() const override;
  double peak_flops() const override { return 0; }
  MemoryInfo memory() const override;
  void* allocate(std::size_t bytes) override;
  void deallocate(void* data) noexcept override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_from_host(void* device, const void* host, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void fill_zero(void* data, std::size_t bytes) override;
  void synchronize() override {}

 private:
  base::ThreadPool pool_;
};

}  // namespace g2::cpu
