// Two-dimensional TMA copies, multicast to the blocks of a cluster, and barriers across it
// (sm_90a).
#pragma once

#include "kernels/hopper.cuh"

namespace g2::kernels {

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits for every thread of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}

// The same barrier in block `rank` of the cluster.
__device__ __forceinline__ std::uint32_t remote_address(const Barrier& barrier, int rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(barrier.address()), "r"(rank));
  return remote;
}
__device__ __forceinline__ void arrive_remote(std::uint32_t remote_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_barrier) : "memory");
}

// How long the L2 cache should keep what a copy touches.
enum class Keep { kNormal, kFirstOut, kLastOut };

template <Keep kKeep>
__device__ __forceinline__ std::uint64_t l2_policy() {
  std::uint64_t policy;
  if constexpr (kKeep == Keep::kFirstOut) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else if constexpr (kKeep == Keep::kLastOut) {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

// Starts one copy of the box at {column, row}; its bytes count on `full`.
__device__ __forceinline__ void tma_load_box(const void* to,
                                             const CUtensorMap& map,
                                             Barrier& full,
                                             int column,
                                             int row,
                                             std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map),
      "r"(full.address()),
      "r"(column),
      "r"(row),
      "l"(policy)
      : "memory");
}

// The same to the same place in every block whose bit is set, counting on the barrier of each.
__device__ __forceinline__ void tma_multicast_box(const void* to,
                                                  const CUtensorMap& map,
                                                  Barrier& full,
                                                  int column,
                                                  int row,
                                                  std::uint16_t blocks,
                                                  std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(
          shared_address(to)),
      "l"(&map),
      "r"(full.address()),
      "r"(column),
      "r"(row),
      "h"(blocks),
      "l"(policy)
      : "memory");
}

// Starts writing a box from shared memory; one group a call.
__device__ __forceinline__ void tma_store_box(
    const void* from, const CUtensorMap& map, int column, int row, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3}], [%1], %4;\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(shared_address(from)),
      "r"(column),
      "r"(row),
      "l"(policy)
      : "memory");
}
// Waits until at most kPending stores of this thread still read shared memory, or until all of them
// have been written.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Makes ordinary writes to shared memory visible to the copy engine; a barrier must follow.
__device__ __forceinline__ void copy_engine_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Stores four 8 x 8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix
// l / 8.
__device__ __forceinline__ void store_matrices(std::uint32_t row_address,
                                               const std::uint32_t (&v)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(v[0]),
      "r"(v[1]),
      "r"(v[2]),
      "r"(v[3])
      : "memory");
}

}  // namespace g2::kernels
