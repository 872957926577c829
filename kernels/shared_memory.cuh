// Addresses in shared memory, and asynchronous copies into it, one small element at a time.
#pragma once

#include <cstdint>

namespace g2::kernels {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Starts copying one float, or writing a zero where it does not exist; `from` must be readable
// either way. Completion: cp.async groups, or Barrier::arrive_after_copies().
__device__ __forceinline__ void copy_float_async(float* to, const float* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
               "l"(from),
               "r"(exists ? 4 : 0)
               : "memory");
}

}  // namespace g2::kernels
