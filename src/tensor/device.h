// Where tensors live: memory, copies and completion. One of the three virtual interfaces.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace g2 {

struct MemoryInfo {
  std::size_t total = 0;
  std::size_t available = 0;
  std::size_t used = 0;  // CPU: this process's peak; GPU: all that is allocated now
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;   // "CPU, 2 threads", "NVIDIA H200 (cuda:0)"
  virtual double peak_flops() const = 0;  // dense peak of the compute type, FLOP/s; 0 when unknown
  virtual MemoryInfo memory() const = 0;

  // At least 256-byte aligned, contents undefined. Throws DeviceError with needed and free bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* data) noexcept = 0;

  // Ordered with the ops issued before and after. Host copies have completed on return.
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill_zero(void* data, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
};

// Owned memory on a device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::size_t bytes) : device_(&device), bytes_(bytes) {
    if (bytes > 0) data_ = device.allocate(bytes);
  }
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }
  void reset() {
    if (data_ != nullptr) device_->deallocate(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace g2
