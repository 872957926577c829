#include "cpu/cpu_device.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "cpu/instructions.h"

namespace g2::cpu {
namespace {

constexpr std::size_t kAlignment = 256;

// MemTotal and MemAvailable of /proc/meminfo; zeros where there is none.
MemoryInfo system_memory() {
  MemoryInfo info;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string unit;
  std::size_t kib = 0;
  while (file >> key >> kib && std::getline(file, unit)) {
    if (key == "MemTotal:") info.total = kib << 10;
    if (key == "MemAvailable:") info.available = kib << 10;
  }
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  info.used = static_cast<std::size_t>(usage.ru_maxrss) << 10;
  return info;
}

// This file alone is compiled for any x86-64, so that the check itself runs everywhere.
void check_instructions() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if ((kCompiledForAvx2 && !avx2) || (kCompiledForAvx512 && !avx512)) {
    throw base::DeviceError(base::cat("this processor lacks ",
                                      avx2 ? "AVX-512" : "AVX2 or FMA",
                                      ", which the CPU backend was compiled for; configure with "
                                      "-DG2_CPU_ARCH=",
                                      avx2 ? "x86-64-v3" : "x86-64",
                                      " and build again"));
  }
#endif
}

}  // namespace

CpuDevice::CpuDevice(int threads) : pool_(threads) {
  check_instructions();
}

std::string CpuDevice::name() const {
  return base::cat("CPU, ", pool_.size(), pool_.size() == 1 ? " thread" : " threads");
}

MemoryInfo CpuDevice::memory() const {
  return system_memory();
}

void* CpuDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes <= std::numeric_limits<std::ptrdiff_t>::max()) {
    const std::size_t blocks = std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment, 1);
    data = std::aligned_alloc(kAlignment, blocks * kAlignment);
  }
  if (data == nullptr) {
    throw base::DeviceError(base::cat("out of memory: ",
                                      base::bytes_text(static_cast<double>(bytes)),
                                      " needed, ",
                                      base::bytes_text(static_cast<double>(memory().available)),
                                      " available; lower train.micro_batch or data.seq_len, or set "
                                      "train.recompute to \"layer\""));
  }
  return data;
}

void CpuDevice::deallocate(void* data) noexcept {
  std::free(data);
}
void CpuDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
}
void CpuDevice::copy_from_host(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
}
void CpuDevice::copy(void* to, const void* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
}
void CpuDevice::fill_zero(void* data, std::size_t bytes) {
  std::memset(data, 0, bytes);
}

}  // namespace g2::cpu
