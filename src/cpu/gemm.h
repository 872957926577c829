// Matrix products: single-threaded OpenBLAS calls on tiles fixed by the shapes alone, run by the
// thread pool, so results do not depend on the thread count. Plain loops without OpenBLAS.
#pragma once

#include <cstdint>
#include <string>

#include "base/thread_pool.h"

namespace g2::cpu {

// A row-major matrix in memory, read as it is or transposed.
template <typename A>
struct Operand {
  const A* data;
  std::int64_t ld;  // elements from one stored row to the next
  bool transposed = false;
};

// c[m, n] = alpha a[m, k] b[k, n] + beta c, with a and b as operands after transposition. beta 0
// does not read c. On the calling thread.
template <typename A>
void gemm_serial(std::int64_t m,
                 std::int64_t n,
                 std::int64_t k,
                 A alpha,
                 const Operand<A>& a,
                 const Operand<A>& b,
                 A beta,
                 A* c,
                 std::int64_t ldc);

// The same, cut into tiles for the pool. Row tiles start at multiples of kRowTile, so a row's bits
// depend on its index but not on how many rows follow in later tiles.
inline constexpr std::int64_t kRowTile = 128;
template <typename A>
void gemm(base::ThreadPool& pool,
          std::int64_t m,
          std::int64_t n,
          std::int64_t k,
          A alpha,
          const Operand<A>& a,
          const Operand<A>& b,
          A beta,
          A* c,
          std::int64_t ldc);

// "OpenBLAS, SkylakeX kernels" or "plain loops", for logs.
std::string gemm_library();

}  // namespace g2::cpu
