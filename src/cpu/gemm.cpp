#include "cpu/gemm.h"

#include <algorithm>
#include <type_traits>

#include "base/text.h"
#include "cpu/lanes.h"
#include "cpu/openblas.h"

namespace g2::cpu {
namespace {

template <typename A>
void store(A* c, A value, A beta) {
  *c = beta == 0 ? value : value + beta * *c;
}

// b transposed: dot products of rows. Otherwise sums of b's rows, some columns at a time.
template <typename A>
void plain_loops(const Product<A>& p) {
  constexpr std::int64_t kColumns = 64;
  const auto a_at = [&](std::int64_t i, std::int64_t l) {
    return p.a.data[p.a.transposed ? l * p.a.ld + i : i * p.a.ld + l];
  };
  for (std::int64_t i = 0; i < p.m; ++i) {
    A* c = p.c + i * p.c_ld;
    for (std::int64_t j = 0; j < p.n && p.b.transposed; ++j) {
      const A* b = p.b.data + j * p.b.ld;
      store(c + j,
            p.alpha * lane_sum<A>(p.k, [&](std::int64_t l) { return a_at(i, l) * b[l]; }),
            p.beta);
    }
    for (std::int64_t first = 0; first < p.n && !p.b.transposed; first += kColumns) {
      const std::int64_t width = std::min(kColumns, p.n - first);
      A sum[kColumns] = {};
      for (std::int64_t l = 0; l < p.k; ++l) {
        const A factor = a_at(i, l);
        const A* b = p.b.data + l * p.b.ld + first;
        for (std::int64_t j = 0; j < width; ++j) sum[j] += factor * b[j];
      }
      for (std::int64_t j = 0; j < width; ++j) store(c + first + j, p.alpha * sum[j], p.beta);
    }
  }
}

#ifdef G2_HAS_OPENBLAS
template <typename A, typename Function>
void call_blas(Function* function, const Product<A>& p) {
  const auto flag = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
  function(CblasRowMajor,
           flag(p.a.transposed),
           flag(p.b.transposed),
           size(p.m),
           size(p.n),
           size(p.k),
           p.alpha,
           p.a.data,
           size(p.a.ld),
           p.b.data,
           size(p.b.ld),
           p.beta,
           p.c,
           size(p.c_ld));
}
#endif

}  // namespace

template <typename A>
void gemm_serial(const Product<A>& p) {
  if (p.m == 0 || p.n == 0) return;
#ifdef G2_HAS_OPENBLAS
  if (const OpenBlas* blas = openblas()) {
    if constexpr (std::is_same_v<A, float>) {
      return call_blas(blas->sgemm, p);
    } else {
      return call_blas(blas->dgemm, p);
    }
  }
#endif
  plain_loops(p);
}

Tile tile_for(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kLargest = 512, kSmallest = 128, kEnough = 8;
  const auto pieces = [](std::int64_t size, std::int64_t tile) { return (size + tile - 1) / tile; };
  Tile tile{kLargest, kLargest};
  while (pieces(m, tile.rows) * pieces(n, tile.columns) < kEnough) {
    // The longer side of an actual tile; one that is cut already stays wider for OpenBLAS.
    std::int64_t& side =
        std::min(m, tile.rows) >= std::min(n, tile.columns) ? tile.rows : tile.columns;
    if (side <= kSmallest) break;
    side /= 2;
  }
  return tile;
}

template <typename A>
void gemm(base::ThreadPool& pool, const Product<A>& p, Tile tile) {
  const std::int64_t row_tiles = (p.m + tile.rows - 1) / tile.rows;
  const std::int64_t column_tiles = (p.n + tile.columns - 1) / tile.columns;
  pool.run(row_tiles * column_tiles, [&](std::int64_t index) {
    const std::int64_t i = index / column_tiles * tile.rows;
    const std::int64_t j = index % column_tiles * tile.columns;
    Product<A> part = p;
    part.m = std::min(tile.rows, p.m - i);
    part.n = std::min(tile.columns, p.n - j);
    part.a.data += p.a.transposed ? i : i * p.a.ld;
    part.b.data += p.b.transposed ? j * p.b.ld : j;
    part.c += i * p.c_ld + j;
    gemm_serial(part);
  });
}

template void gemm_serial(const Product<float>&);
template void gemm_serial(const Product<double>&);
template void gemm(base::ThreadPool&, const Product<float>&, Tile);
template void gemm(base::ThreadPool&, const Product<double>&, Tile);

std::string gemm_library() {
#ifdef G2_HAS_OPENBLAS
  if (const OpenBlas* blas = openblas()) {
    return base::cat("OpenBLAS, ", blas->corename(), " kernels");
  }
#endif
  return "plain loops";
}

}  // namespace g2::cpu
