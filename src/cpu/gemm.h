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

// c[m, n] = alpha a[m, k] b[k, n] + beta c, with a and b as they are after transposition. beta 0
// does not read c.
template <typename A>
struct Product {
  std::int64_t m, n, k;
  Operand<A> a, b;
  A* c;
  std::int64_t c_ld;
  A alpha = 1;
  A beta = 0;
};

// On the calling thread.
template <typename A>
void gemm_serial(const Product<A>& p);

struct Tile {
  std::int64_t rows, columns;
};

// Large enough for few copies of operands, small enough to keep several threads busy: 512 x 512,
// halved while there are fewer than 8, but at least 128 x 128.
Tile tile_for(std::int64_t m, std::int64_t n);

// Cut into tiles of c for the pool. With tiles given, a full tile's bits depend on its rows, its
// columns and k alone.
template <typename A>
void gemm(base::ThreadPool& pool, const Product<A>& p, Tile tile);
template <typename A>
void gemm(base::ThreadPool& pool, const Product<A>& p) {
  gemm(pool, p, tile_for(p.m, p.n));
}

// "OpenBLAS, SkylakeX kernels" or "plain loops", for logs.
std::string gemm_library();

}  // namespace g2::cpu
