#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "cuda/status.h"
#include "kernels/device_code.h"

namespace g2::cuda {
namespace {

using base::cat;

constexpr std::size_t kStageBytes = std::size_t{8} << 20;
constexpr int kOldestCapability = 80;

// Dense bf16 peak of the models sold with one, by their data sheets. Parts of the same name with
// fewer multiprocessors (PCIe) are slower and not listed.
struct Peak {
  std::string_view name;
  int multiprocessors;
  double flops;
};
constexpr Peak kPeaks[] = {{"H200", 132, 989.4e12}, {"H100", 132, 989.4e12}, {"A100", 108, 312e12}};

std::string version_text(int version) {
  return cat(version / 1000, ".", version % 1000 / 10);
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "asking the GPU for its properties");
  return value;
}

int capability_of(int index) {
  return attribute(cudaDevAttrComputeCapabilityMajor, index) * 10 +
         attribute(cudaDevAttrComputeCapabilityMinor, index);
}

std::string model_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking the GPU for its name");
  return properties.name;
}

std::string without_driver(cudaError_t status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "no NVIDIA driver is installed";
  if (status == cudaErrorInsufficientDriver) {
    return cat("the NVIDIA driver is too old: it supports CUDA ",
               version_text(driver),
               ", this program needs ",
               version_text(CUDART_VERSION),
               "; update the driver");
  }
  return cat("CUDA does not start: ", cudaGetErrorString(status));
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const std::string message = cat(what, ": ", cudaGetErrorString(status));
  if (status == cudaErrorECCUncorrectable || status == cudaErrorHardwareStackError) {
    throw base::HardwareSuspect(cat(message, "; this GPU's hardware is at fault"));
  }
  throw base::DeviceError(message);
}

std::optional<std::string> why_unusable(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    return "no NVIDIA GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)";
  }
  if (status != cudaSuccess) return without_driver(status);
  if (index < 0 || index >= count) {
    return cat("device.index is ", index, ", but there are ", count, " GPUs, numbered from 0");
  }
  try {
    const int capability = capability_of(index);
    if (capability < kOldestCapability) {
      return cat(model_of(index),
                 " has compute capability ",
                 capability / 10,
                 ".",
                 capability % 10,
                 "; 8.0 or later is needed (A100, RTX 30 series)");
    }
    check(cudaSetDevice(index), cat("opening cuda:", index));
    const cudaError_t code = kernels::find_device_code();
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction ||
        code == cudaErrorUnsupportedPtxVersion) {
      return cat("this program was not built for ",
                 model_of(index),
                 " (compute capability ",
                 capability / 10,
                 ".",
                 capability % 10,
                 "); configure with -DCMAKE_CUDA_ARCHITECTURES=",
                 capability,
                 " and build again");
    }
    check(code, cat("opening cuda:", index));
  } catch (const base::Error& e) {
    return e.what();
  }
  return std::nullopt;
}

CudaDevice::CudaDevice(int index) : index_(index) {
  if (const auto reason = why_unusable(index)) throw base::DeviceError(*reason);
  check(cudaSetDevice(index), cat("opening cuda:", index));
  model_ = model_of(index);
  capability_ = capability_of(index);
  multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount, index);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  for (Stage& stage : stages_) {
    check(cudaMallocHost(reinterpret_cast<void**>(&stage.memory), kStageBytes),
          "allocating pinned memory");
    check(cudaEventCreateWithFlags(&stage.event, cudaEventDisableTiming), "making an event");
  }
}

CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(stream_);
  for (const Stage& stage : stages_) {
    cudaEventDestroy(stage.event);
    cudaFreeHost(stage.memory);
  }
  cudaStreamDestroy(stream_);
}

std::string CudaDevice::name() const {
  return cat(model_, " (cuda:", index_, ")");
}

double CudaDevice::peak_flops() const {
  for (const Peak& peak : kPeaks) {
    if (model_.find(peak.name) != std::string::npos && multiprocessors_ == peak.multiprocessors) {
      return peak.flops;
    }
  }
  return 0;
}

MemoryInfo CudaDevice::memory() const {
  MemoryInfo info;
  check(cudaMemGetInfo(&info.available, &info.total), "asking for free memory");
  info.used = info.total - info.available;
  return info;
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the next call must not report it again
    const MemoryInfo info = memory();
    throw base::DeviceError(cat("out of memory on ",
                                name(),
                                ": ",
                                base::bytes_text(static_cast<double>(bytes)),
                                " needed, ",
                                base::bytes_text(static_cast<double>(info.available)),
                                " of ",
                                base::bytes_text(static_cast<double>(info.total)),
                                " free; lower train.micro_batch or data.seq_len, or set "
                                "train.recompute to \"layer\""));
  }
  check(status, "allocating memory");
  return data;
}

void CudaDevice::deallocate(void* data) noexcept {
  cudaFree(data);
}

void CudaDevice::copy_from_host(void* device, const void* host, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(device);
  const auto* from = static_cast<const std::byte*>(host);
  for (std::size_t done = 0; done < bytes; done += kStageBytes) {
    const std::size_t count = std::min(kStageBytes, bytes - done);
    const Stage& stage = stages_[next_stage_];
    next_stage_ = (next_stage_ + 1) % stages_.size();
    check(cudaEventSynchronize(stage.event), "copying to the GPU");
    std::memcpy(stage.memory, from + done, count);
    check(cudaMemcpyAsync(to + done, stage.memory, count, cudaMemcpyHostToDevice, stream_),
          "copying to the GPU");
    check(cudaEventRecord(stage.event, stream_), "copying to the GPU");
  }
}

// While one part is copied out of its stage, the next is on its way into the other.
void CudaDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(host);
  const auto* from = static_cast<const std::byte*>(device);
  const std::size_t parts = (bytes + kStageBytes - 1) / kStageBytes;
  const auto part_bytes = [&](std::size_t part) {
    return std::min(kStageBytes, bytes - part * kStageBytes);
  };
  const auto start = [&](std::size_t part) {
    const Stage& stage = stages_[part % stages_.size()];
    check(cudaMemcpyAsync(stage.memory,
                          from + part * kStageBytes,
                          part_bytes(part),
                          cudaMemcpyDeviceToHost,
                          stream_),
          "copying from the GPU");
    check(cudaEventRecord(stage.event, stream_), "copying from the GPU");
  };
  if (parts > 0) start(0);
  for (std::size_t part = 0; part < parts; ++part) {
    if (part + 1 < parts) start(part + 1);
    const Stage& stage = stages_[part % stages_.size()];
    check(cudaEventSynchronize(stage.event), "copying from the GPU");
    std::memcpy(to + part * kStageBytes, stage.memory, part_bytes(part));
  }
}

void CudaDevice::copy(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying on the GPU");
}

void CudaDevice::fill_zero(void* data, std::size_t bytes) {
  check(cudaMemsetAsync(data, 0, bytes, stream_), "clearing memory on the GPU");
}

void CudaDevice::synchronize() {
  check(cudaStreamSynchronize(stream_), "work on the GPU failed");
}

}  // namespace g2::cuda
