#include "cpu/gemm.h"

#include <algorithm>

#include "base/text.h"
#include "cpu/openblas.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kColumnTile = 512;

template <typename A>
void plain_loops(std::int64_t m,
                 std::int64_t n,
                 std::int64_t k,
                 A alpha,
                 const Operand<A>& a,
                 const Operand<A>& b,
                 A beta,
                 A* c,
                 std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      A sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += (a.transposed ? a.data[l * a.ld + i] : a.data[i * a.ld + l]) *
               (b.transposed ? b.data[j * b.ld + l] : b.data[l * b.ld + j]);
      }
      A& out = c[i * ldc + j];
      out = beta == 0 ? alpha * sum : alpha * sum + beta * out;
    }
  }
}

}  // namespace

template <typename A>
void gemm_serial(std::int64_t m,
                 std::int64_t n,
                 std::int64_t k,
                 A alpha,
                 const Operand<A>& a,
                 const Operand<A>& b,
                 A beta,
                 A* c,
                 std::int64_t ldc) {
  if (m == 0 || n == 0) return;
#ifdef G2_HAS_OPENBLAS
  if (const OpenBlas* blas = openblas()) {
    const auto product = [&](auto* function) {
      const auto transpose = [](const Operand<A>& x) {
        return x.transposed ? CblasTrans : CblasNoTrans;
      };
      const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
      function(CblasRowMajor,
               transpose(a),
               transpose(b),
               size(m),
               size(n),
               size(k),
               alpha,
               a.data,
               size(a.ld),
               b.data,
               size(b.ld),
               beta,
               c,
               size(ldc));
    };
    if constexpr (std::is_same_v<A, float>) {
      product(blas->sgemm);
    } else {
      product(blas->dgemm);
    }
    return;
  }
#endif
  plain_loops(m, n, k, alpha, a, b, beta, c, ldc);
}

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
          std::int64_t ldc) {
  const std::int64_t row_tiles = (m + kRowTile - 1) / kRowTile;
  const std::int64_t column_tiles = (n + kColumnTile - 1) / kColumnTile;
  pool.run(row_tiles * column_tiles, [&](std::int64_t tile) {
    const std::int64_t i = tile / column_tiles * kRowTile;
    const std::int64_t j = tile % column_tiles * kColumnTile;
    const Operand<A> a_tile{a.data + (a.transposed ? i : i * a.ld), a.ld, a.transposed};
    const Operand<A> b_tile{b.data + (b.transposed ? j * b.ld : j), b.ld, b.transposed};
    gemm_serial(std::min(kRowTile, m - i),
                std::min(kColumnTile, n - j),
                k,
                alpha,
                a_tile,
                b_tile,
                beta,
                c + i * ldc + j,
                ldc);
  });
}

template void gemm_serial(std::int64_t,
                          std::int64_t,
                          std::int64_t,
                          float,
                          const Operand<float>&,
                          const Operand<float>&,
                          float,
                          float*,
                          std::int64_t);
template void gemm_serial(std::int64_t,
                          std::int64_t,
                          std::int64_t,
                          double,
                          const Operand<double>&,
                          const Operand<double>&,
                          double,
                          double*,
                          std::int64_t);
template void gemm(base::ThreadPool&,
                   std::int64_t,
                   std::int64_t,
                   std::int64_t,
                   float,
                   const Operand<float>&,
                   const Operand<float>&,
                   float,
                   float*,
                   std::int64_t);
template void gemm(base::ThreadPool&,
                   std::int64_t,
                   std::int64_t,
                   std::int64_t,
                   double,
                   const Operand<double>&,
                   const Operand<double>&,
                   double,
                   double*,
                   std::int64_t);

std::string gemm_library() {
#ifdef G2_HAS_OPENBLAS
  if (const OpenBlas* blas = openblas())
    return base::cat("OpenBLAS, ", blas->corename(), " kernels");
#endif
  return "plain loops";
}

}  // namespace g2::cpu
