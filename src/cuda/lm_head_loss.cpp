// The head, soft cap and cross-entropy in chunks of rows that have a target; kernels/lm_head_loss.h
// lists the steps. On Hopper bf16 logits never reach memory: one kernel makes E from x and w.
#include "kernels/lm_head_loss.h"

#include <algorithm>
#include <vector>

#include "cuda/cuda_ops.h"
#include "cuda/dispatch.h"

namespace g2::cuda {
namespace {

constexpr const char* kOp = "lm_head_loss";
constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kProductRows = 64;
constexpr int kHopper = 90;

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// What of the workspace's layout depends on the call: sizes, type and which kernels run.
struct Layout {
  DType dtype = DType::kF32;
  std::int64_t tokens = 0, hidden = 0, vocab = 0;
  bool fused = false;
  bool with_grad = false;
  bool with_top1 = false;

  std::int64_t row_elements() const { return round_up(vocab, 8); }  // 16-byte aligned rows of E
  std::int64_t tiles() const {
    return (vocab + kernels::kFusedColumns - 1) / kernels::kFusedColumns;
  }
  // Rows of a chunk are a multiple: whole tiles, so that a row's logits do not depend on the chunk.
  std::int64_t unit() const { return fused ? kernels::kFusedRows : kProductRows; }
};

// Views of the workspace for chunks of `rows`; null members are not needed by the call.
struct Parts {
  std::byte* x = nullptr;       // [rows, d]  T
  int* targets = nullptr;       // [rows]
  float* factor = nullptr;      // [rows]
  float* loss = nullptr;        // [N]: kept, so that sums are formed in one order at the end
  float* z_loss = nullptr;      // [N]
  std::byte* logits = nullptr;  // [rows, row_elements]: f32 or, fused, E as bf16
  float* product = nullptr;     // [rows, d]
  kernels::FusedPartials fused{};
  std::size_t bytes = 0;
};

// Lays the parts out from `memory`; null: only counts.
Parts lay_out(const Layout& l, std::int64_t rows, std::byte* memory) {
  Parts parts;
  const auto take = [&]<typename T>(T*& part, std::int64_t elements, std::size_t element_bytes) {
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + parts.bytes);
    const auto bytes = elements * static_cast<std::int64_t>(element_bytes);
    parts.bytes += static_cast<std::size_t>(round_up(bytes, kAlignment));
  };
  take(parts.loss, l.tokens, sizeof(float));
  take(parts.z_loss, l.tokens, sizeof(float));
  take(parts.x, rows * l.hidden, dtype_bytes(l.dtype));
  take(parts.targets, rows, sizeof(int));
  take(parts.factor, rows, sizeof(float));
  if (!l.fused) take(parts.logits, rows * l.row_elements(), sizeof(float));
  if (l.fused) {
    take(parts.fused.others, l.tiles() * rows, sizeof(float));
    take(parts.fused.z_target, rows, sizeof(float));
    if (l.with_top1) {
      take(parts.fused.best, l.tiles() * rows, sizeof(float));
      take(parts.fused.best_id, l.tiles() * rows, sizeof(int));
    }
    if (l.with_grad) take(parts.logits, rows * l.row_elements(), dtype_bytes(l.dtype));
  }
  if (l.with_grad) take(parts.product, rows * l.hidden, sizeof(float));
  return parts;
}

std::size_t bytes_of(const Layout& l, std::int64_t rows) {
  return lay_out(l, rows, nullptr).bytes;
}

// The most rows, a multiple of the unit and no more than the call can use, that fit into `bytes`;
// at least one unit.
std::int64_t rows_that_fit(const Layout& l, std::size_t bytes) {
  const std::int64_t unit = l.unit();
  std::int64_t low = 1;
  std::int64_t high = std::max<std::int64_t>((l.tokens + unit - 1) / unit, 1);
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (bytes_of(l, middle * unit) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * unit;
}

bool is_fused(const CudaDevice& device, const LmHeadLoss& p) {
  return p.x.dtype == DType::kBF16 && device.compute_capability() == kHopper &&
         kernels::lm_head_fused_covers(static_cast<int>(p.x.dim(1)), static_cast<float>(p.softcap));
}

void check_arguments(const LmHeadLoss& p) {
  require(p.x.dim(1) == p.w.dim(1) && p.targets.dim(0) == p.x.dim(0) &&
              static_cast<bool>(p.grad_x) == static_cast<bool>(p.grad_w),
          kOp,
          "need x [N, d], w [V, d], targets [N], both gradients or none",
          p.x,
          p.w,
          p.targets);
  require_dtype(kOp, p.x.dtype, p.w, p.grad_x);
  require_dtype(kOp, work_dtype(p.x.dtype), p.loss, p.grad_w);
  require_dtype(kOp, DType::kI32, p.targets, p.rows, p.top1, p.flags);
  require_dtype(kOp, DType::kF64, p.sums);
}

// The steps of one call, chunk after chunk.
template <typename T>
class ChunkedLoss {
 public:
  ChunkedLoss(
      Matmul& matmul, cudaStream_t stream, const LmHeadLoss& p, const Tensor& rows, bool fused)
      : matmul_(matmul),
        stream_(stream),
        p_(p),
        rows_(rows),
        layout_{.dtype = p.x.dtype,
                .tokens = p.x.dim(0),
                .hidden = p.x.dim(1),
                .vocab = p.w.dim(0),
                .fused = fused,
                .with_grad = bool{p.grad_x},
                .with_top1 = bool{p.top1}},
        chunk_(rows_that_fit(layout_, p.workspace.bytes())),
        parts_(lay_out(layout_, chunk_, static_cast<std::byte*>(p.workspace.data))) {
    require(parts_.bytes <= p.workspace.bytes(),
            kOp,
            "the workspace is smaller than lm_head_workspace_bytes()",
            p.workspace);
  }

  void run() {
    const std::int64_t valid = rows_.size();
    for (std::int64_t first = 0; first < valid; first += chunk_) {
      const std::int64_t count = std::min(chunk_, valid - first);
      const kernels::LossRows at{.rows = pointer<int>(rows_) + first,
                                 .valid = count,
                                 .padded = round_up(count, layout_.unit())};
      check(kernels::gather_rows<T>({.at = at,
                                     .x = pointer<T>(p_.x),
                                     .targets = pointer<int>(p_.targets),
                                     .x_chunk = x(),
                                     .chunk_targets = parts_.targets,
                                     .hidden = hidden()},
                                    stream_));
      if (layout_.fused) {
        fused_pass(at, first);
      } else {
        product_and_pass(at, first);
      }
      if (!layout_.with_grad) continue;
      x_gradient(at);
      w_gradient(count, p_.accumulate_grad_w || first > 0);
    }
    check(kernels::add_loss_sums({.loss = parts_.loss,
                                  .z_loss = parts_.z_loss,
                                  .count = valid,
                                  .sums = pointer<double>(p_.sums)},
                                 stream_));
  }

 private:
  void check(cudaError_t status) const { launched(status, kOp, p_.x, p_.w); }
  T* x() const { return reinterpret_cast<T*>(parts_.x); }
  __nv_bfloat16* fused_e() const { return reinterpret_cast<__nv_bfloat16*>(parts_.logits); }
  int hidden() const { return static_cast<int>(layout_.hidden); }
  // E lies where the logits were, so its rows are as far apart.
  std::int64_t e_ld() const {
    const std::size_t element = layout_.fused ? sizeof(T) : sizeof(float);
    return layout_.row_elements() * static_cast<std::int64_t>(element / sizeof(T));
  }
  kernels::LossTerms terms() const {
    return {.softcap = static_cast<float>(p_.softcap),
            .z_weight = static_cast<float>(p_.z_weight),
            .grad_scale = static_cast<float>(p_.grad_scale)};
  }
  kernels::LossResults results(std::int64_t first) const {
    return {.loss = parts_.loss + first,
            .z_loss = parts_.z_loss + first,
            .factor = parts_.factor,
            .token_loss = pointer<float>(p_.loss),
            .token_top1 = pointer<int>(p_.top1),
            .flags = pointer<int>(p_.flags)};
  }
  Product product(std::int64_t m, std::int64_t n, std::int64_t k) const {
    return {.m = m, .n = n, .k = k, .in = layout_.dtype, .out = DType::kF32};
  }

  void fused_pass(const kernels::LossRows& at, std::int64_t first) {
    __nv_bfloat16* e = layout_.with_grad ? fused_e() : nullptr;
    check(kernels::lm_head_fused({.x = reinterpret_cast<const __nv_bfloat16*>(parts_.x),
                                  .w = pointer<__nv_bfloat16>(p_.w),
                                  .chunk_targets = parts_.targets,
                                  .e = e,
                                  .e_row_elements = layout_.row_elements(),
                                  .padded = at.padded,
                                  .vocab = layout_.vocab,
                                  .hidden = hidden(),
                                  .softcap = terms().softcap,
                                  .partials = parts_.fused,
                                  .flags = pointer<int>(p_.flags)},
                                 stream_));
    check(kernels::lm_head_finish({.at = at,
                                   .chunk_targets = parts_.targets,
                                   .partials = parts_.fused,
                                   .e = e,
                                   .e_row_elements = layout_.row_elements(),
                                   .vocab = layout_.vocab,
                                   .terms = terms(),
                                   .out = results(first)},
                                  stream_));
  }

  void product_and_pass(const kernels::LossRows& at, std::int64_t first) {
    Product logits = product(chunk_, layout_.vocab, layout_.hidden);
    logits.a = {x(), layout_.hidden};
    logits.b = {p_.w.data, layout_.hidden, true};
    logits.c = parts_.logits;
    logits.c_ld = layout_.row_elements();
    run_part(logits, &Product::m, at.padded);
    check(kernels::lm_head_pass<T>({.at = at,
                                    .chunk_targets = parts_.targets,
                                    .logits = reinterpret_cast<float*>(parts_.logits),
                                    .row_elements = layout_.row_elements(),
                                    .vocab = layout_.vocab,
                                    .terms = terms(),
                                    .out = results(first),
                                    .with_grad = layout_.with_grad},
                                   stream_));
  }

  void x_gradient(const kernels::LossRows& at) {
    Product grad = product(chunk_, layout_.hidden, layout_.vocab);
    grad.a = {parts_.logits, e_ld()};
    grad.b = {p_.w.data, layout_.hidden};
    grad.c = parts_.product;
    grad.c_ld = layout_.hidden;
    run_part(grad, &Product::m, at.valid);
    check(kernels::scatter_grad_x<T>({.at = at,
                                      .product = parts_.product,
                                      .factor = parts_.factor,
                                      .grad_x = pointer<T>(p_.grad_x),
                                      .hidden = hidden()},
                                     stream_));
  }

  void w_gradient(std::int64_t count, bool accumulate) {
    check(kernels::scale_rows<T>(
        {.x = x(), .factor = parts_.factor, .rows = count, .hidden = hidden()}, stream_));
    Product grad = product(layout_.vocab, layout_.hidden, chunk_);
    grad.a = {parts_.logits, e_ld(), true};
    grad.b = {x(), layout_.hidden};
    grad.c = p_.grad_w.data;
    grad.c_ld = layout_.hidden;
    grad.accumulate = accumulate;
    run_part(grad, &Product::k, count);
  }

  // The product with fewer rows of the chunk, by the algorithm of whole chunks.
  void run_part(const Product& whole, std::int64_t Product::*extent, std::int64_t rows) {
    Product part = whole;
    part.*extent = rows;
    matmul_.run(part, whole);
  }

  Matmul& matmul_;
  cudaStream_t stream_;
  const LmHeadLoss& p_;
  const Tensor& rows_;
  Layout layout_;
  std::int64_t chunk_;
  Parts parts_;
};

}  // namespace

std::size_t CudaOps::lm_head_workspace_bytes(DType dtype,
                                             std::int64_t tokens,
                                             std::int64_t hidden,
                                             std::int64_t vocab,
                                             std::size_t budget_bytes,
                                             bool with_grad) const {
  // Which kernels will run depends on the cap: the layout that takes more serves both.
  std::size_t needed = 0;
  for (const bool fused : {false, true}) {
    if (fused && (dtype != DType::kBF16 || device_.compute_capability() != kHopper)) continue;
    const Layout l{dtype, tokens, hidden, vocab, fused, with_grad, true};
    needed = std::max(needed, bytes_of(l, rows_that_fit(l, budget_bytes)));
  }
  return needed;
}

// p.rows, or the same list made here, at the price of waiting for the GPU.
Tensor CudaOps::rows_with_target(const LmHeadLoss& p) {
  if (p.rows) return p.rows;
  const auto n = static_cast<std::size_t>(p.targets.dim(0));
  std::vector<std::int32_t> targets(n);
  device_.copy_to_host(targets.data(), p.targets.data, p.targets.bytes());
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < n; ++i) {
    if (targets[i] != kIgnoredTarget) rows.push_back(static_cast<std::int32_t>(i));
  }
  const std::size_t bytes = rows.size() * sizeof(std::int32_t);
  grow(rows_, bytes);
  device_.copy_from_host(rows_.data(), rows.data(), bytes);
  return Tensor(rows_.data(), DType::kI32, {static_cast<std::int64_t>(rows.size())});
}

void CudaOps::clear_ignored(const LmHeadLoss& p, std::int64_t valid) {
  if (valid == p.targets.dim(0)) return;
  for (const Tensor& tensor : {p.loss, p.top1, p.grad_x}) {
    if (tensor) device_.fill_zero(tensor.data, tensor.bytes());
  }
  if (p.grad_w && valid == 0 && !p.accumulate_grad_w) {
    device_.fill_zero(p.grad_w.data, p.grad_w.bytes());
  }
}

void CudaOps::lm_head_loss(const LmHeadLoss& p) {
  check_arguments(p);
  const Tensor rows = rows_with_target(p);
  clear_ignored(p, rows.size());
  for_dtype(kOp, p.x.dtype, [&]<typename T>() {
    ChunkedLoss<T>(matmul_, device_.stream(), p, rows, is_fused(device_, p)).run();
  });
}

void CudaOps::lm_head_logits(const LmHeadLogits& p) {
  constexpr const char* kLogitsOp = "lm_head_logits";
  const std::int64_t n = p.x.dim(0);
  const std::int64_t d = p.x.dim(1);
  const std::int64_t v = p.w.dim(0);
  require(p.w.dim(1) == d && p.logits.dim(0) == n && p.logits.dim(1) == v,
          kLogitsOp,
          "need x [N, d], w [V, d], logits [N, V]",
          p.x,
          p.w,
          p.logits);
  require_dtype(kLogitsOp, p.x.dtype, p.w);
  require_dtype(kLogitsOp, work_dtype(p.x.dtype), p.logits);
  for_dtype(kLogitsOp, p.x.dtype, []<typename T>() {});
  if (n == 0) return;
  matmul_.run({.m = n,
               .n = v,
               .k = d,
               .in = p.x.dtype,
               .out = DType::kF32,
               .a = {p.x.data, d},
               .b = {p.w.data, d, true},
               .c = p.logits.data,
               .c_ld = v});
  if (p.softcap == 0) return;
  launched(kernels::softcap_logits({.logits = pointer<float>(p.logits),
                                    .count = p.logits.size(),
                                    .softcap = static_cast<float>(p.softcap)},
                                   device_.stream()),
           kLogitsOp,
           p.logits);
}

}  // namespace g2::cuda
