// Building blocks of warp-specialised Hopper kernels (sm_90a): barriers in shared memory, TMA
// loads, register budgets, and what surrounds wgmma (kernels/wgmma.cuh has the instruction).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/shared_memory.cuh"

namespace g2::kernels {

constexpr int kWarpgroupThreads = 128;

// An mbarrier. A phase ends when all expected arrivals and all expected bytes have come; phases
// have parity 0, 1, 0, ... A wait for parity 1 on a fresh barrier returns at once.
class Barrier {
 public:
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals));
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  // One arrival, made when all earlier cp.async copies of this thread have landed.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address())
                 : "memory");
  }
  __device__ __forceinline__ void wait(std::uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\nretry:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra retry;\n}\n" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  __device__ __forceinline__ std::uint32_t address() const { return shared_address(this); }

 private:
  std::uint64_t state_;
};

// Makes initialised barriers visible to the copy engine; a __syncthreads() must follow.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Position in a ring of kStages buffers; the parity flips on every lap.
template <int kStages>
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Full and empty barriers of a ring of buffers. The producer waits for parity ^ 1 on `empty`.
template <int kStages>
struct Ring {
  Barrier full[kStages];
  Barrier empty[kStages];
  __device__ void init(int full_arrivals, int empty_arrivals) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(full_arrivals);
      empty[i].init(empty_arrivals);
    }
  }
};

// Starts one TMA copy of the box at {0, row, 0, head}; its bytes count on `full`.
__device__ __forceinline__ void tma_load(
    const void* to, const CUtensorMap& map, Barrier& full, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %3, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map),
      "r"(full.address()),
      "r"(0),
      "r"(row),
      "r"(head)
      : "memory");
}

// Gives registers of this warpgroup back, or takes more: every warp of it must call this.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Named barrier over `threads` threads: wait for all, or announce and go on.
template <int kId>
__device__ __forceinline__ void named_barrier_sync(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
template <int kId>
__device__ __forceinline__ void named_barrier_arrive(int threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}

// The warpgroup's number, in a form the compiler knows to be the same in all lanes.
__device__ __forceinline__ int warpgroup_index() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x / kWarpgroupThreads), 0);
}

// Orders register writes before the wgmma that reads them.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Tells the compiler that these accumulators changed behind its back; use after the wait.
template <int kCount>
__device__ __forceinline__ void wgmma_arrived(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// A tile in shared memory as wgmma reads it: panels of 64 columns, [columns / 64][rows][128 bytes],
// each row of a panel swizzled over its 128 bytes, the layout one TMA box of [columns / 64, rows,
// 64] leaves. Panels start at multiples of 1024 bytes.
struct MatrixDescriptor {
  std::uint64_t bits;
  // Advances the start address; offsets are multiples of 16.
  __device__ __forceinline__ MatrixDescriptor operator+(int bytes) const {
    return {bits + static_cast<std::uint64_t>(bytes >> 4)};
  }
};

constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = 128;

__device__ __forceinline__ MatrixDescriptor matrix_descriptor(const void* tile,
                                                              std::uint32_t leading_bytes) {
  constexpr std::uint64_t kSwizzle128 = 1ull << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{8 * kPanelRowBytes >> 4} << 32;
  const std::uint64_t start = (shared_address(tile) & 0x3ffff) >> 4;
  return {kSwizzle128 | kEightRows | std::uint64_t{leading_bytes >> 4} << 16 | start};
}

// Products over the columns of a tile (q k^T): the 16 columns of step k of a tile of kRows rows.
__device__ __forceinline__ MatrixDescriptor along_columns(const void* tile) {
  return matrix_descriptor(tile, 16);
}
template <int kRows>
__device__ __forceinline__ constexpr int column_step(int k) {
  return k / 4 * (kRows * kPanelRowBytes) + k % 4 * 32;
}

// Products over the rows of a tile of kRows rows (p v), operand transposed: the 16 rows of step k.
template <int kRows>
__device__ __forceinline__ MatrixDescriptor along_rows(const void* tile) {
  return matrix_descriptor(tile, kRows * kPanelRowBytes);
}
__device__ __forceinline__ constexpr int row_step(int k) {
  return k * 16 * kPanelRowBytes;
}

}  // namespace g2::kernels
