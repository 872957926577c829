// Must catch: memory aligned too little for vector code, an allocation that cannot be met answered
// with a crash or a null pointer, sizes that overflow when rounded up, copies that miss bytes.
#include "cpu/cpu_device.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"

namespace g2::cpu {
namespace {

TEST(CpuDevice, AllocatesAlignedMemoryOfAnySize) {
  CpuDevice device(1);
  for (const std::size_t bytes : {0, 1, 255, 256, 257, 100003}) {
    const Buffer memory(device, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
    void* data = device.allocate(bytes);
    EXPECT_NE(data, nullptr);
    device.deallocate(data);
  }
}

TEST(CpuDevice, SaysWhatAnImpossibleAllocationNeeded) {
  CpuDevice device(1);
  constexpr std::size_t kLargest = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> sizes = {kLargest, kLargest / 2 + 1};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  sizes.push_back(std::size_t{1} << 60);  // sanitizers abort instead of returning null
#endif
  for (const std::size_t bytes : sizes) {
    try {
      device.allocate(bytes);
      ADD_FAILURE();
    } catch (const base::DeviceError& e) {
      EXPECT_THAT(e.what(), testing::StartsWith("out of memory: "));
      EXPECT_THAT(e.what(), testing::HasSubstr("needed"));
      EXPECT_THAT(e.what(), testing::HasSubstr("available"));
    }
  }
}

TEST(CpuDevice, CopiesAndClears) {
  CpuDevice device(1);
  std::vector<char> host = {'a', 'b', 'c', 'd', 'e'}, back(5);
  const Buffer memory(device, 5);
  device.copy_from_host(memory.data(), host.data(), 5);
  device.copy(memory.data() + 1, memory.data(), 4);  // overlapping
  device.copy_to_host(back.data(), memory.data(), 5);
  EXPECT_EQ(std::string(back.begin(), back.end()), "aabcd");
  device.fill_zero(memory.data(), 4);
  device.copy_to_host(back.data(), memory.data(), 5);
  EXPECT_EQ(back, (std::vector<char>{0, 0, 0, 0, 'd'}));
}

TEST(CpuDevice, KnowsItsThreadsAndMemory) {
  EXPECT_EQ(CpuDevice(3).name(), "CPU, 3 threads");
  EXPECT_EQ(CpuDevice(1).name(), "CPU, 1 thread");
  const MemoryInfo memory = CpuDevice(1).memory();
  EXPECT_GT(memory.total, memory.available);
  EXPECT_GT(memory.available, 0U);
}

}  // namespace
}  // namespace g2::cpu
