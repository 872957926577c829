#include "tests/ops/cpu_ops_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace g2::test {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kPoison{0xff};

cpu::CpuDevice& host() {
  static cpu::CpuDevice device(1);
  return device;
}

bool all_poison(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kPoison; });
}

}  // namespace

double unit_roundoff(DType dtype) {
  if (dtype == DType::kF64) return 0x1p-53;
  return dtype == DType::kF32 ? 0x1p-24 : 0x1p-8;
}

Array::Array(DType dtype, std::vector<std::int64_t> shape) {
  tensor_.dtype = dtype;
  tensor_.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor_.shape.begin());
  memory_.assign(tensor_.bytes() + 2 * kGuardBytes, kPoison);
  tensor_.data = memory_.data() + kGuardBytes;
}

Array::Array(DType dtype, std::vector<std::int64_t> shape, const std::vector<double>& values)
    : Array(dtype, std::move(shape)) {
  EXPECT_EQ(static_cast<std::int64_t>(values.size()), tensor_.size());
  write_values(host(), tensor_, values);
}

std::vector<double> Array::values() const {
  return read_values(host(), tensor_);
}

std::vector<std::byte> Array::bytes() const {
  return {memory_.begin() + kGuardBytes, memory_.end() - kGuardBytes};
}

bool Array::guards_are_intact() const {
  const std::span<const std::byte> all(memory_);
  return all_poison(all.first(kGuardBytes)) && all_poison(all.last(kGuardBytes));
}

bool Array::has_poison() const {
  const std::size_t width = dtype_bytes(tensor_.dtype);
  const std::span<const std::byte> all(memory_);
  for (std::size_t i = 0; i < tensor_.bytes(); i += width) {
    if (all_poison(all.subspan(kGuardBytes + i, width))) return true;
  }
  return false;
}

Array random_array(std::mt19937_64& rng,
                   DType dtype,
                   std::vector<std::int64_t> shape,
                   double std_dev) {
  std::size_t size = 1;
  for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return {dtype, std::move(shape), normal<double>(rng, size, std_dev)};
}

Array integers(const std::vector<std::int32_t>& values) {
  return {DType::kI32,
          {static_cast<std::int64_t>(values.size())},
          std::vector<double>(values.begin(), values.end())};
}

Array converted(const Array& array, DType dtype) {
  const Tensor& t = array;
  return {dtype, {t.shape.begin(), t.shape.begin() + t.rank}, array.values()};
}

struct DistrustingOps::Machine {
  cpu::CpuDevice devices[3] = {cpu::CpuDevice(1), cpu::CpuDevice(2), cpu::CpuDevice(5)};
  cpu::CpuOps ops[3] = {cpu::CpuOps(devices[0].pool()),
                        cpu::CpuOps(devices[1].pool()),
                        cpu::CpuOps(devices[2].pool())};
};

std::unique_ptr<DistrustingOps> DistrustingOps::create() {
  return std::unique_ptr<DistrustingOps>(new DistrustingOps(std::make_shared<Machine>()));
}

DistrustingOps::DistrustingOps(std::shared_ptr<Machine> machine)
    : OpsDecorator(std::make_unique<cpu::CpuOps>(machine->devices[0].pool()), machine->devices[0]),
      machine_(std::move(machine)) {}

void DistrustingOps::around(const OpCall& call) {
  const std::size_t count = call.tensors.size();
  std::vector<Tensor> originals(count);
  for (std::size_t i = 0; i < count; ++i) originals[i] = *call.tensors[i].tensor;
  std::vector<std::vector<std::byte>> first(count);
  for (cpu::CpuOps& ops : machine_->ops) {
    std::map<void*, Array> copies;  // tensors that are one stay one
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& t = originals[i];
      Array& copy = copies[t.data];
      if (!copy->data) copy = Array(t.dtype, {t.shape.begin(), t.shape.begin() + t.rank});
      if (is_read(call.tensors[i].role)) std::memcpy(copy->data, t.data, t.bytes());
    }
    for (std::size_t i = 0; i < count; ++i)
      call.tensors[i].tensor->data = copies[originals[i].data]->data;
    call.run(ops);
    for (std::size_t i = 0; i < count; ++i) {
      call.tensors[i].tensor->data = originals[i].data;
      const TensorSlot& slot = call.tensors[i];
      const Array& copy = copies[originals[i].data];
      EXPECT_TRUE(copy.guards_are_intact()) << call.op << ": beyond " << slot.name;
      if (!is_written(slot.role)) continue;
      EXPECT_FALSE(slot.role == Role::kOut && copy.has_poison())
          << call.op << ": an element of " << slot.name << " is not written";
      if (first[i].empty()) first[i] = copy.bytes();
      EXPECT_TRUE(first[i] == copy.bytes())
          << call.op << ": " << slot.name << " depends on the thread count";
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (is_written(call.tensors[i].role)) {
      std::copy(first[i].begin(), first[i].end(), static_cast<std::byte*>(originals[i].data));
    }
  }
}

Ops& ops() {
  static const std::unique_ptr<DistrustingOps> instance = DistrustingOps::create();
  return *instance;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double gradient_error(const std::function<double(const std::vector<double>&)>& f,
                      const std::vector<double>& x,
                      const std::vector<double>& gradient) {
  constexpr int kDirections = 4;
  constexpr double kStep = 1e-3;  // error kStep^4 f^(5) / 30, rounding 1e-16 / kStep
  std::mt19937_64 rng(99);
  const double length = std::sqrt(dot(gradient, gradient));
  double worst = 0;
  for (int trial = 0; trial < kDirections; ++trial) {
    // Half along the gradient, so the derivative cannot be tiny by chance, half random.
    std::vector<double> v =
        normal<double>(rng, x.size(), 1 / std::sqrt(static_cast<double>(x.size())));
    for (std::size_t i = 0; i < v.size() && length > 0; ++i) v[i] += gradient[i] / length;
    const double size = std::sqrt(dot(v, v));
    for (double& value : v) value /= size;
    const auto at = [&](double step) {
      std::vector<double> moved = x;
      for (std::size_t i = 0; i < x.size(); ++i) moved[i] += step * v[i];
      return f(moved);
    };
    const double difference =
        (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    const double error = std::abs(dot(gradient, v) - difference) / std::max(length, 1e-30);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace g2::test
