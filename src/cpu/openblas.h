// OpenBLAS, loaded with the kernels this processor deserves.
//
// OpenBLAS picks its kernels once, while it is being loaded, from a list of processor models. On a
// model newer than the library it falls back to SSE3 (0.3.21, Debian 12: 31 instead of 150 GFLOP/s
// a core on a Xeon of 2023). So it is not linked but loaded here, after OPENBLAS_CORETYPE has named
// the kernels that the processor's instructions allow, unless the user has set that variable.
#pragma once

#ifdef G2_HAS_OPENBLAS
#include <cblas.h>

namespace g2::cpu {

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  decltype(&openblas_set_num_threads) set_num_threads = nullptr;
  decltype(&openblas_get_corename) corename = nullptr;
};

// The library, set to one thread; loaded by the first call. Null where it is not installed.
const OpenBlas* openblas();

}  // namespace g2::cpu
#endif
