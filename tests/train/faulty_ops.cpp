#include "tests/train/faulty_ops.h"

#include <cmath>
#include <cstring>
#include <numbers>

namespace g2::test {
namespace {

template <typename Body>
void for_float_type(DType dtype, Body&& body) {
  if (dtype == DType::kF64) {
    body(double{});
  } else {
    body(float{});
  }
}

// Straight from the equations of AttentionBackward, sums in f64.
template <typename T>
void attention_backward_by_the_book(const AttentionBackward& p, bool with_cap_factor) {
  const auto& [heads, kv_heads, h, scale, cap] = p.shape;
  const std::int64_t width = (heads + 2 * kv_heads) * h;
  const std::int64_t n = p.lo.size();
  const T* qkv = p.qkv.as<T>();
  std::vector<double> grad(static_cast<std::size_t>(n * width), 0);
  for (std::int64_t a = 0; a < heads; ++a) {
    const std::int64_t q = a * h;
    const std::int64_t k = (heads + a / (heads / kv_heads)) * h;
    const std::int64_t v = k + kv_heads * h;
    for (std::int64_t i = 0; i < n; ++i) {
      const T* o = p.o.as<T>() + (i * heads + a) * h;
      const T* grad_o = p.grad_o.as<T>() + (i * heads + a) * h;
      double delta = 0;
      for (std::int64_t e = 0; e < h; ++e) delta += double{o[e]} * grad_o[e];
      for (std::int64_t j = p.lo.as<std::int32_t>()[i]; j <= i; ++j) {
        double s = 0;
        double grad_p = 0;
        for (std::int64_t e = 0; e < h; ++e) {
          s += scale * qkv[i * width + q + e] * qkv[j * width + k + e];
          grad_p += double{grad_o[e]} * qkv[j * width + v + e];
        }
        const double t = std::tanh(s / cap);
        const double prob = std::exp(cap * t - p.lse.as<T>()[a * n + i] * std::numbers::ln2);
        const double grad_s = prob * (grad_p - delta) * (with_cap_factor ? 1 - t * t : 1) * scale;
        for (std::int64_t e = 0; e < h; ++e) {
          grad[i * width + q + e] += grad_s * qkv[j * width + k + e];
          grad[j * width + k + e] += grad_s * qkv[i * width + q + e];
          grad[j * width + v + e] += prob * grad_o[e];
        }
      }
    }
  }
  for (std::size_t i = 0; i < grad.size(); ++i) p.grad_qkv.as<T>()[i] = T(grad[i]);
}

template <typename T>
void interleaved_rope(const Rope& p) {
  const std::int64_t h = p.table.dim(1);
  const std::int64_t width = p.x.dim(1);
  for (std::int64_t n = 0; n < p.x.dim(0); ++n) {
    const T* cosine = p.table.as<T>() + p.positions.as<std::int32_t>()[n] * h;
    const T* sine = cosine + h / 2;
    for (std::int64_t a = 0; a < p.heads; ++a) {
      T* x = p.x.as<T>() + n * width + a * h;
      for (std::int64_t i = 0; i < h / 2; ++i) {
        const T s = p.inverse ? -sine[i] : sine[i];
        const T even = x[2 * i];
        const T odd = x[2 * i + 1];
        x[2 * i] = even * cosine[i] - odd * s;
        x[2 * i + 1] = odd * cosine[i] + even * s;
      }
    }
  }
}

}  // namespace

Tensor FaultyOps::gain(const Tensor& w, std::vector<double>& memory) const {
  if (settings_.fault != Fault::kGainWithoutOne) return w;
  memory.resize(static_cast<std::size_t>(w.size()));
  Tensor less = w;
  less.data = memory.data();
  for_float_type(w.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < w.size(); ++i) less.as<T>()[i] = w.as<T>()[i] - 1;
  });
  return less;
}

void FaultyOps::rmsnorm_forward(const RmsnormForward& p) {
  RmsnormForward faulty = p;
  faulty.w = gain(p.w, gain_memory_[0]);
  inner_.rmsnorm_forward(faulty);
}

void FaultyOps::rmsnorm_add_forward(const RmsnormAddForward& p) {
  RmsnormAddForward faulty = p;
  faulty.w_post = gain(p.w_post, gain_memory_[0]);
  faulty.w_pre = gain(p.w_pre, gain_memory_[1]);
  inner_.rmsnorm_add_forward(faulty);
}

void FaultyOps::rmsnorm_backward(const RmsnormBackward& p) {
  RmsnormBackward faulty = p;
  faulty.w = gain(p.w, gain_memory_[0]);
  inner_.rmsnorm_backward(faulty);
}

void FaultyOps::rope(const Rope& p) {
  if (settings_.fault != Fault::kInterleavedRope) return inner_.rope(p);
  for_float_type(p.x.dtype, [&](auto zero) { interleaved_rope<decltype(zero)>(p); });
}

void FaultyOps::attention_backward(const AttentionBackward& p) {
  const bool complete = settings_.fault == Fault::kOwnAttentionBackward;
  if (!complete && settings_.fault != Fault::kNoCapInAttentionBackward) {
    return inner_.attention_backward(p);
  }
  for_float_type(p.qkv.dtype,
                 [&](auto zero) { attention_backward_by_the_book<decltype(zero)>(p, complete); });
}

void FaultyOps::mean_per_micro_batch(LmHeadLoss p) {
  std::int64_t valid = 0;
  for (std::int64_t n = 0; n < p.targets.size(); ++n) {
    valid += p.targets.as<std::int32_t>()[n] != kIgnoredTarget ? 1 : 0;
  }
  const double right = p.grad_scale;
  p.grad_scale = 1 / static_cast<double>(valid * settings_.micro_batches);
  double* sum = p.sums.as<double>();
  const double before = *sum;
  inner_.lm_head_loss(p);
  *sum = before + (*sum - before) * p.grad_scale / right;
}

void FaultyOps::lm_head_loss(const LmHeadLoss& p) {
  const bool trains = static_cast<bool>(p.grad_x);
  LmHeadLoss changed = p;
  if (settings_.smallest_lm_head_chunks) {
    const std::size_t bytes =
        lm_head_workspace_bytes(p.x.dtype, p.x.dim(0), p.x.dim(1), p.w.dim(0), 0, trains);
    changed.workspace = p.workspace.rows(0, static_cast<std::int64_t>(bytes / 4));
  }
  if (trains && settings_.fault == Fault::kMeanPerMicroBatch) {
    return mean_per_micro_batch(changed);
  }
  if (trains && settings_.fault == Fault::kNoHeadGradient) {
    lost_gradient_.resize(static_cast<std::size_t>(p.grad_w.size()));
    changed.grad_w.data = lost_gradient_.data();
    if (!p.accumulate_grad_w) std::memset(p.grad_w.data, 0, p.grad_w.bytes());
  }
  inner_.lm_head_loss(changed);
}

void FaultyOps::adamw(const Adamw& p) {
  Adamw faulty = p;
  if (settings_.fault == Fault::kDecayedNorms && p.weight_decay == 0 &&
      p.master.size() < settings_.embedding_elements) {
    faulty.weight_decay = settings_.weight_decay;
  }
  inner_.adamw(faulty);
}

}  // namespace g2::test
