#include "cuda/cublaslt.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace g2::cuda {
namespace {

void* load_library() {
  const std::string name = base::cat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = ::dlopen(G2_CUBLASLT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw base::DeviceError(base::cat(name,
                                      " is not found; install cuBLAS of CUDA ",
                                      CUBLAS_VER_MAJOR,
                                      " or set LD_LIBRARY_PATH"));
  }
  return library;  // stays loaded until the process ends
}

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) throw base::DeviceError(base::cat("libcublasLt has no ", name));
}

CublasLt load() {
  CublasLt lt;
  void* library = load_library();
  find(library, "cublasLtCreate", &lt.create);
  find(library, "cublasLtDestroy", &lt.destroy);
  find(library, "cublasLtGetVersion", &lt.version);
  find(library, "cublasLtMatmul", &lt.matmul);
  find(library, "cublasLtMatmulDescCreate", &lt.desc_create);
  find(library, "cublasLtMatmulDescDestroy", &lt.desc_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", &lt.desc_set);
  find(library, "cublasLtMatrixLayoutCreate", &lt.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
  find(library, "cublasLtMatmulPreferenceCreate", &lt.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
  find(library, "cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  find(library, "cublasLtMatmulAlgoCheck", &lt.check);
  return lt;
}

const char* reason(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid argument";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "not for this GPU";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the product failed on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "internal error";
  }
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt lt = load();
  return lt;
}

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw base::DeviceError(
      base::cat(what, ": cuBLASLt: ", reason(status), " (status ", static_cast<int>(status), ")"));
}

}  // namespace g2::cuda
