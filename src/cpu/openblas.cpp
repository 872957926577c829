#include "cpu/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

namespace g2::cpu {
namespace {

// The name of the best OpenBLAS kernels for this processor, or null: let it choose.
const char* core_type() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

// An environment variable that is set for the lifetime of the object, if it was not set before.
class DefaultVariable {
 public:
  DefaultVariable(const char* name, const char* value) {
    if (value == nullptr || std::getenv(name) != nullptr) return;
    ::setenv(name, value, 0);
    name_ = name;
  }
  ~DefaultVariable() {
    if (name_ != nullptr) ::unsetenv(name_);
  }
  DefaultVariable(const DefaultVariable&) = delete;
  DefaultVariable& operator=(const DefaultVariable&) = delete;

 private:
  const char* name_ = nullptr;
};

void* load_library() {
  const DefaultVariable core("OPENBLAS_CORETYPE", core_type());
  const DefaultVariable threads("OPENBLAS_NUM_THREADS", "1");  // it would start idle ones
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  void* library = ::dlopen(G2_OPENBLAS_LIBRARY, kFlags);  // the one the build found
  return library != nullptr ? library : ::dlopen("libopenblas.so.0", kFlags);
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

OpenBlas load() {
  OpenBlas blas;
  void* library = load_library();  // stays loaded until the process ends
  if (library == nullptr || !find(library, "cblas_sgemm", &blas.sgemm) ||
      !find(library, "cblas_dgemm", &blas.dgemm) ||
      !find(library, "openblas_set_num_threads", &blas.set_num_threads) ||
      !find(library, "openblas_get_corename", &blas.corename)) {
    return {};
  }
  blas.set_num_threads(1);
  return blas;
}

}  // namespace

const OpenBlas* openblas() {
  static const OpenBlas blas = load();
  return blas.sgemm != nullptr ? &blas : nullptr;
}

}  // namespace g2::cpu
