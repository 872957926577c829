// Matrix products by cuBLASLt: f32 accumulation, no TF32, no split sums in less than f32, and one
// algorithm a product for the whole run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "cuda/cublaslt.h"
#include "cuda/cuda_device.h"
#include "cuda/plan_table.h"
#include "tensor/device.h"

namespace g2::cuda {

// A row-major matrix, or its transpose; `ld` elements from row to row as it lies in memory.
struct Operand {
  const void* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
};

// c [m, n] (+)= op(a) [m, k] op(b) [k, n]; a and b of type `in`, c of type `out`.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType in = DType::kF32;   // f32 or bf16
  DType out = DType::kF32;  // f32, or bf16 where `in` is
  Operand a{}, b{};
  void* c = nullptr;
  std::int64_t c_ld = 0;
  bool accumulate = false;
};

class Matmul {
 public:
  // Without a plan file every product takes cuBLASLt's first suggestion. With one, large products
  // take the fastest of several, timed under sustained load at their first call; the choices are
  // read from the file if it exists and written to it as they are made. Throws DataError for a file
  // that is no plan table.
  Matmul(CudaDevice& device, std::filesystem::path plan_file);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // No extent may be 0. A timed first call writes c several times before it holds the product.
  void run(const Product& product) { run(product, product); }
  // With the algorithm of `planned`: the same product with the largest extents it comes with, whose
  // memory must exist. One algorithm then serves every size.
  void run(const Product& product, const Product& planned);

 private:
  struct Prepared;  // a product's descriptors and algorithm
  const Prepared& prepared(const Product& product, const Product& planned);
  Algorithm choose(const Product& product, const PlanKey& key);
  Algorithm fastest(const Product& product, Prepared& p, const std::vector<Algorithm>& algorithms);
  void launch(const Product& product, const Prepared& p, bool accumulate);

  CudaDevice& device_;
  const CublasLt& lt_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::filesystem::path plan_file_;
  std::unique_ptr<PlanTable> table_;
  std::map<PlanKey, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace g2::cuda
