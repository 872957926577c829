// Device arrays with guard bands, random attention problems, and their f64 reference.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ostream>
#include <tuple>

#include "base/thread_pool.h"
#include "cpu/cpu_ops.h"
#include "kernels/attention.h"
#include "tests/support/support.h"

namespace g2::test {

using kernels::AttentionPath;

template <typename T>
using DeviceType = std::conditional_t<std::is_same_v<T, float>, float, __nv_bfloat16>;

inline void check(cudaError_t error, const char* what) {
  ASSERT_EQ(error, cudaSuccess) << what << ": " << cudaGetErrorString(error);
}

// Device memory between two guard bands. Starts as NaN, like its guards.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    check(cudaMalloc(&memory_, bytes() + 2 * kGuardBytes), "cudaMalloc");
    poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice), "copy to device");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(memory_); }

  void poison() { check(cudaMemset(memory_, kPoison, bytes() + 2 * kGuardBytes), "cudaMemset"); }
  T* data() const { return reinterpret_cast<T*>(static_cast<char*>(memory_) + kGuardBytes); }
  DeviceType<T>* typed() const { return reinterpret_cast<DeviceType<T>*>(data()); }

  std::vector<T> read() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), data(), bytes(), cudaMemcpyDeviceToHost), "copy from device");
    return values;
  }
  bool guards_are_intact() const {
    std::vector<unsigned char> all(bytes() + 2 * kGuardBytes);
    check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "copy guards");
    const auto untouched = [](unsigned char c) { return c == kPoison; };
    return std::all_of(all.begin(), all.begin() + kGuardBytes, untouched) &&
           std::all_of(all.end() - kGuardBytes, all.end(), untouched);
  }

 private:
  static constexpr std::size_t kGuardBytes = 1024;
  static constexpr unsigned char kPoison = 0xff;  // NaN in f32 and in bf16
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  void* memory_ = nullptr;
};

struct Shape {
  std::int64_t tokens = 1;
  int q_heads = 2;
  int kv_heads = 1;
  int head_dim = 256;
  std::int64_t window = 0;                // 0: none
  std::vector<std::int64_t> starts = {};  // of documents after the first
  double logit_std = 1;
  double softcap = 50;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "N=" << s.tokens << " H=" << s.q_heads << " K=" << s.kv_heads << " h=" << s.head_dim
             << " W=" << s.window << " documents=" << s.starts.size() + 1
             << " logit_std=" << s.logit_std << " softcap=" << s.softcap << " seed=7";
}

struct Intervals {
  std::vector<std::int32_t> lo, hi;
};

inline Intervals intervals_of(const Shape& s) {
  Intervals x;
  std::vector<std::int64_t> bounds = {0};
  for (const std::int64_t start : s.starts) {
    if (start < s.tokens) bounds.push_back(start);
  }
  bounds.push_back(s.tokens);
  for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
    for (std::int64_t i = bounds[d]; i < bounds[d + 1]; ++i) {
      const bool windowed = s.window > 0;
      x.lo.push_back(std::max(bounds[d], windowed ? i - s.window + 1 : 0));
      x.hi.push_back(std::min(bounds[d + 1] - 1, windowed ? i + s.window - 1 : s.tokens));
    }
  }
  return x;
}

template <typename T>
struct Inputs {
  Shape shape;
  double scale;
  Intervals mask;
  std::vector<T> qkv, grad_o;
  std::size_t row() const {
    return static_cast<std::size_t>(shape.q_heads + 2 * shape.kv_heads) * shape.head_dim;
  }
};

// Normal values; q is scaled so that q . k has the wanted deviation.
template <typename T>
Inputs<T> normal_inputs(const Shape& s) {
  std::mt19937_64 rng(7);
  Inputs<T> x{s, 1 / std::sqrt(double(s.head_dim)), intervals_of(s), {}, {}};
  x.qkv = normal<T>(rng, x.row() * s.tokens);
  for (std::size_t i = 0; i < x.qkv.size(); ++i) {
    const bool is_q = i % x.row() < std::size_t(s.q_heads) * s.head_dim;
    if (is_q) x.qkv[i] = T(double(x.qkv[i]) * s.logit_std);
  }
  x.grad_o = normal<T>(rng, std::size_t(s.tokens) * s.q_heads * s.head_dim);
  return x;
}

template <typename T>
struct Outputs {
  std::vector<T> o, grad_qkv;
  std::vector<Work<T>> lse, delta;
};

inline kernels::AttentionShape kernel_shape(const Shape& s, double scale) {
  return {s.tokens, s.q_heads, s.kv_heads, s.head_dim, float(scale), float(s.softcap)};
}

// Runs forward and backward on poisoned outputs, twice: the bits must agree, the guards survive.
template <typename T>
Outputs<T> run_on_gpu(const Inputs<T>& x, AttentionPath path) {
  const Shape& s = x.shape;
  const DeviceArray<T> qkv(x.qkv), grad_o(x.grad_o);
  const DeviceArray<std::int32_t> lo(x.mask.lo), hi(x.mask.hi);
  DeviceArray<T> o(x.grad_o.size()), grad_qkv(x.qkv.size());
  DeviceArray<float> lse(std::size_t(s.tokens) * s.q_heads),
      delta(std::size_t(s.tokens) * s.q_heads);
  const auto shape = kernel_shape(s, x.scale);
  Outputs<T> first, second;
  for (Outputs<T>* out : {&first, &second}) {
    o.poison();
    lse.poison();
    grad_qkv.poison();
    delta.poison();
    check(kernels::attention_forward<DeviceType<T>>(
              {shape, qkv.typed(), lo.data(), o.typed(), lse.data()}, path, nullptr),
          "forward");
    check(kernels::attention_backward<DeviceType<T>>({shape,
                                                      qkv.typed(),
                                                      o.typed(),
                                                      lse.data(),
                                                      grad_o.typed(),
                                                      lo.data(),
                                                      hi.data(),
                                                      grad_qkv.typed(),
                                                      delta.data()},
                                                     path,
                                                     nullptr),
          "backward");
    check(cudaDeviceSynchronize(), "attention");
    *out = {o.read(), grad_qkv.read(), lse.read(), delta.read()};
  }
  EXPECT_TRUE(o.guards_are_intact() && lse.guards_are_intact() && grad_qkv.guards_are_intact() &&
              delta.guards_are_intact());
  const auto same = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  EXPECT_TRUE(same(first.o, second.o) && same(first.lse, second.lse) &&
              same(first.grad_qkv, second.grad_qkv) && same(first.delta, second.delta))
      << "two runs differ";
  return first;
}

template <typename A>
Tensor tensor(std::vector<A>& values, std::initializer_list<std::int64_t> shape) {
  return Tensor(values.data(), dtype_of<A>(), shape);
}

template <typename T>
Outputs<double> reference(const Inputs<T>& x) {
  static base::ThreadPool pool;
  static cpu::CpuOps ops(pool);
  const Shape& s = x.shape;
  const auto row = std::int64_t(x.row()), o_row = std::int64_t{s.q_heads} * s.head_dim;
  auto qkv = converted<double>(x.qkv), grad_o = converted<double>(x.grad_o);
  Intervals mask = x.mask;
  Outputs<double> out;
  out.o.resize(grad_o.size());
  out.grad_qkv.resize(qkv.size());
  out.lse.resize(s.tokens * s.q_heads);
  out.delta.resize(s.tokens * s.q_heads);
  const AttentionShape shape{s.q_heads, s.kv_heads, s.head_dim, x.scale, s.softcap};
  ops.attention_forward({shape,
                         tensor(qkv, {s.tokens, row}),
                         tensor(mask.lo, {s.tokens}),
                         tensor(out.o, {s.tokens, o_row}),
                         tensor(out.lse, {s.q_heads, s.tokens})});
  ops.attention_backward({shape,
                          tensor(qkv, {s.tokens, row}),
                          tensor(out.o, {s.tokens, o_row}),
                          tensor(out.lse, {s.q_heads, s.tokens}),
                          tensor(grad_o, {s.tokens, o_row}),
                          tensor(mask.lo, {s.tokens}),
                          tensor(mask.hi, {s.tokens}),
                          tensor(out.grad_qkv, {s.tokens, row}),
                          tensor(out.delta, {s.q_heads, s.tokens})});
  return out;
}

// The q, k or v columns of fused rows.
enum class Part { kQ, kK, kV };

template <typename T, typename U>
std::vector<double> columns(const std::vector<T>& rows, const Inputs<U>& x, Part part) {
  const std::size_t q = std::size_t(x.shape.q_heads) * x.shape.head_dim;
  const std::size_t kv = std::size_t(x.shape.kv_heads) * x.shape.head_dim;
  const std::size_t begin = part == Part::kQ ? 0 : part == Part::kK ? q : q + kv;
  const std::size_t width = part == Part::kQ ? q : kv;
  std::vector<double> out;
  for (std::size_t i = 0; i < rows.size(); i += x.row()) {
    for (std::size_t j = 0; j < width; ++j) out.push_back(double(rows[i + begin + j]));
  }
  return out;
}

// The largest error of a row, against the average length of a row: catches one bad row among many.
inline double worst_row(const std::vector<double>& got,
                        const std::vector<double>& want,
                        std::size_t width) {
  double worst = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); i += width) {
    double error = 0;
    for (std::size_t j = i; j < i + width; ++j) {
      error += (got[j] - want[j]) * (got[j] - want[j]);
      norm += want[j] * want[j];
    }
    if (!(error <= worst)) worst = error;
  }
  return norm == 0 ? worst : std::sqrt(worst / (norm / (double(want.size()) / double(width))));
}

struct Tolerance {
  double o, grad_v, grad_qk, lse;  // relative l2; lse absolute
};
// Rounding P, dS and the outputs to bf16 costs 2.3e-3 to 2.6e-3 at unit logits, up to 7e-3 where a
// few large weights decide; tanh.approx moves lse by 6e-4 at most on an H200.
inline constexpr Tolerance kBf16{4e-3, 4e-3, 6e-3, 1e-3};
inline constexpr Tolerance kBf16LargeLogits{8e-3, 8e-3, 2e-2, 2e-3};
inline constexpr Tolerance kF32{1e-5, 1e-5, 1e-5, 2e-5};
inline constexpr double kWorstRow = 20;  // times the tolerance; rows differ in length

template <typename T>
void expect_agreement(const Outputs<T>& got,
                      const Outputs<double>& want,
                      const Inputs<T>& x,
                      const Tolerance& tolerance) {
  const auto o = converted<double>(got.o);
  const std::size_t h = x.shape.head_dim;
  EXPECT_LE(relative_l2(o, want.o), tolerance.o) << "o";
  EXPECT_LE(worst_row(o, want.o, h), kWorstRow * tolerance.o) << "a row of o";
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    ASSERT_NEAR(got.lse[i], want.lse[i], tolerance.lse) << "lse " << i;
  }
  for (const auto& [part, name, bound] : {std::tuple{Part::kQ, "grad_q", tolerance.grad_qk},
                                          {Part::kK, "grad_k", tolerance.grad_qk},
                                          {Part::kV, "grad_v", tolerance.grad_v}}) {
    const auto g = columns(got.grad_qkv, x, part);
    const auto w = columns(want.grad_qkv, x, part);
    // A single token has no gradient towards q and k; what is left is the rounding of delta.
    const bool is_zero = x.shape.tokens == 1 && part != Part::kV;
    if (is_zero) {
      EXPECT_LE(std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0)), 100 * bound)
          << name;
      continue;
    }
    EXPECT_LE(relative_l2(g, w), bound) << name;
    EXPECT_LE(worst_row(g, w, h), kWorstRow * bound) << "a row of " << name;
  }
}

}  // namespace g2::test
