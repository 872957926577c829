// Ops over flat ranges: gradient norm, AdamW, casts, initial weights.
#include <cmath>

#include "base/philox.h"
#include "cuda/cuda_ops.h"
#include "cuda/dispatch.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/fill_normal.h"
#include "kernels/norm.h"

namespace g2::cuda {

static_assert(kNormBlock == kernels::kNormBlock);

void CudaOps::block_sums_of_squares(const BlockSumsOfSquares& p) {
  constexpr const char* kOp = "block_sums_of_squares";
  const std::int64_t n = p.x.size();
  require(p.block_sums.size() == (n + kNormBlock - 1) / kNormBlock,
          kOp,
          "need one sum a block",
          p.x,
          p.block_sums);
  require_dtype(kOp, DType::kF32, p.x);
  require_dtype(kOp, DType::kF64, p.block_sums);
  launched(kernels::block_sums_of_squares(
               {.x = pointer<float>(p.x), .block_sums = pointer<double>(p.block_sums), .count = n},
               device_.stream()),
           kOp,
           p.x);
}

void CudaOps::clip_factor(const ClipFactor& p) {
  constexpr const char* kOp = "clip_factor";
  require_dtype(kOp, DType::kF64, p.block_sums, p.norm, p.factor);
  launched(kernels::clip_factor({.block_sums = pointer<double>(p.block_sums),
                                 .blocks = p.block_sums.size(),
                                 .max_norm = p.max_norm,
                                 .norm = pointer<double>(p.norm),
                                 .factor = pointer<double>(p.factor)},
                                device_.stream()),
           kOp,
           p.block_sums);
}

void CudaOps::adamw(const Adamw& p) {
  constexpr const char* kOp = "adamw";
  const std::int64_t n = p.master.size();
  require(
      p.m.size() == n && p.v.size() == n && p.grad.size() == n && (!p.copy || p.copy.size() == n),
      kOp,
      "sizes differ",
      p.master,
      p.m,
      p.v,
      p.grad);
  require_dtype(kOp, DType::kF32, p.master, p.m, p.v, p.grad);
  require_dtype(kOp, DType::kBF16, p.copy);
  require_dtype(kOp, DType::kF64, p.factor);
  require(p.step >= 1, kOp, "step counts from 1", p.master);
  const auto correction = [&](double beta) {
    return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(p.step))));
  };
  launched(kernels::adamw({.master = pointer<float>(p.master),
                           .m = pointer<float>(p.m),
                           .v = pointer<float>(p.v),
                           .grad = pointer<float>(p.grad),
                           .copy = pointer<__nv_bfloat16>(p.copy),
                           .factor = pointer<double>(p.factor),
                           .count = n,
                           .learning_rate = static_cast<float>(p.learning_rate),
                           .beta1 = static_cast<float>(p.beta1),
                           .beta2 = static_cast<float>(p.beta2),
                           .one_minus_beta1 = static_cast<float>(1 - p.beta1),
                           .one_minus_beta2 = static_cast<float>(1 - p.beta2),
                           .correction1 = correction(p.beta1),
                           .correction2 = correction(p.beta2),
                           .eps = static_cast<float>(p.eps),
                           .weight_decay = static_cast<float>(p.weight_decay)},
                          device_.stream()),
           kOp,
           p.master);
}

namespace {

// As for_dtype, with double too.
template <typename Body>
void for_float(const char* op, DType dtype, Body&& body) {
  if (dtype == DType::kF64) return body.template operator()<double>();
  for_dtype(op, dtype, body);
}

}  // namespace

void CudaOps::cast(const Cast& p) {
  constexpr const char* kOp = "cast";
  const std::int64_t n = p.x.size();
  require(p.y.size() == n, kOp, "sizes differ", p.x, p.y);
  for_float(kOp, p.x.dtype, [&]<typename From>() {
    for_float(kOp, p.y.dtype, [&]<typename To>() {
      launched(kernels::cast<From, To>({.x = pointer<From>(p.x), .y = pointer<To>(p.y), .count = n},
                                       device_.stream()),
               kOp,
               p.x,
               p.y);
    });
  });
}

void CudaOps::fill_normal(const FillNormal& p) {
  constexpr const char* kOp = "fill_normal";
  require_dtype(kOp, DType::kF32, p.y);
  launched(kernels::fill_normal({.y = pointer<float>(p.y),
                                 .count = p.y.size(),
                                 .seed = p.seed,
                                 .purpose = static_cast<std::uint32_t>(base::RandomPurpose::kInit),
                                 .stream = p.stream,
                                 .std_dev = p.std_dev},
                                device_.stream()),
           kOp,
           p.y);
}

}  // namespace g2::cuda
