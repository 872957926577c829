#include "cpu/gemm.h"

#include <algorithm>

#ifdef G2_HAS_OPENBLAS
#include <cblas.h>
#endif

namespace g2::cpu {
namespace {

constexpr std::int64_t kColumnTile = 512;

#ifdef G2_HAS_OPENBLAS
// OpenBLAS would start threads of its own inside ours.
void use_one_blas_thread() {
  static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

CBLAS_TRANSPOSE flag(bool transposed) {
  return transposed ? CblasTrans : CblasNoTrans;
}

void blas(std::int64_t m,
          std::int64_t n,
          std::int64_t k,
          float alpha,
          const Operand<float>& a,
          const Operand<float>& b,
          float beta,
          float* c,
          std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor,
              flag(a.transposed),
              flag(b.transposed),
              static_cast<blasint>(m),
              static_cast<blasint>(n),
              static_cast<blasint>(k),
              alpha,
              a.data,
              static_cast<blasint>(a.ld),
              b.data,
              static_cast<blasint>(b.ld),
              beta,
              c,
              static_cast<blasint>(ldc));
}

void blas(std::int64_t m,
          std::int64_t n,
          std::int64_t k,
          double alpha,
          const Operand<double>& a,
          const Operand<double>& b,
          double beta,
          double* c,
          std::int64_t ldc) {
  cblas_dgemm(CblasRowMajor,
              flag(a.transposed),
              flag(b.transposed),
              static_cast<blasint>(m),
              static_cast<blasint>(n),
              static_cast<blasint>(k),
              alpha,
              a.data,
              static_cast<blasint>(a.ld),
              b.data,
              static_cast<blasint>(b.ld),
              beta,
              c,
              static_cast<blasint>(ldc));
}
#else
template <typename A>
void blas(std::int64_t m,
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

void use_one_blas_thread() {}
#endif

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
  use_one_blas_thread();
  blas(m, n, k, alpha, a, b, beta, c, ldc);
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

const char* gemm_library() {
#ifdef G2_HAS_OPENBLAS
  return OPENBLAS_VERSION;
#else
  return "plain loops";
#endif
}

}  // namespace g2::cpu
