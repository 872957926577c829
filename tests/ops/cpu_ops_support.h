// Arrays with guard bands, an Ops that distrusts every call, and finite differences, for the tests
// of the CPU ops.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "tensor/ops_decorator.h"
#include "tests/support/support.h"

namespace g2::test {

inline constexpr DType kFloatTypes[] = {DType::kF64, DType::kF32, DType::kBF16};

// Half a unit in the last place relative to a value, at most; of bf16 0x1p-8.
double unit_roundoff(DType dtype);

// A tensor between two guard bands of poison, a NaN in every float type and -1 in i32.
class Array {
 public:
  Array() = default;
  // All poison.
  Array(DType dtype, std::vector<std::int64_t> shape);
  // The values, rounded to the type.
  Array(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values);

  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  operator const Tensor&() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  std::vector<double> values() const;
  std::vector<std::byte> bytes() const;
  bool guards_are_intact() const;
  bool has_poison() const;  // an element that was never written

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

// Normal values of this standard deviation, as they are after rounding to the type.
Array random_array(std::mt19937_64& rng,
                   DType dtype,
                   std::vector<std::int64_t> shape,
                   double std_dev = 1);
// An i32 tensor [values.size()].
Array integers(const std::vector<std::int32_t>& values);
// The same values in another type.
Array converted(const Array& array, DType dtype);

// CpuOps that makes every call three times, with 1, 2 and 5 threads, in fresh memory with guard
// bands, outputs and scratch full of poison. A test fails when bits depend on the thread count,
// when memory beyond a tensor is written, or when an element of an output is not.
class DistrustingOps final : public OpsDecorator {
 public:
  static std::unique_ptr<DistrustingOps> create();

 private:
  struct Machine;
  explicit DistrustingOps(std::shared_ptr<Machine> machine);
  void around(const OpCall& call) override;

  std::shared_ptr<Machine> machine_;
};

// Shared by all tests of a program.
Ops& ops();

// |g . v - (df/dv by five points)| / |g| for a random direction v of length 1, the worst of a few:
// how wrong `gradient` is as the gradient of f at x.
double gradient_error(const std::function<double(const std::vector<double>&)>& f,
                      const std::vector<double>& x,
                      const std::vector<double>& gradient);

double dot(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace g2::test
