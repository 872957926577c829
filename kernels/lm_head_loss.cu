#include "kernels/lm_head_loss.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kPassThreads = 512;
constexpr int kPassVectors = 2;  // of 4 logits each, in flight
constexpr int kPassTile = kPassThreads * kPassVectors * 4;
constexpr int kRowThreads = 256;  // of the kernels over rows of d elements
constexpr int kPerThread = 2;
constexpr int kFinishRows = 32;
constexpr int kFinishSegments = 8;  // of tiles; summed apart, then in order
constexpr int kSumThreads = 1024;

constexpr float kSaturated = 1e-4f;  // 1 - t^2 of a target below this sets its flag
constexpr float kFar = 60;           // from here on log1p(R / e_y) would overflow or lose digits

// c and 1 - t^2 of a logit without cancellation: q = e^(-2|u|), u = z / cap.
struct Capped {
  float below_cap;  // cap - c
  float slope;      // 1 - t^2
};
__device__ __forceinline__ Capped capped(float z, float inverse_cap, float cap) {
  const float u = z * inverse_cap;
  const float q = __expf(-2 * fabsf(u));
  const float s = __fdividef(1.f, 1 + q);
  return {2 * cap * (u >= 0 ? q * s : s), 4 * q * s * s};
}

struct RowEnd {
  float loss;
  float z_loss;
  float factor;
  float target_e;
  int flags;
};

// From R and the target's logit to all that depends on the whole row.
__device__ RowEnd end_of_row(float others, float z_target, float offset, const LossTerms& terms) {
  float gap = offset - z_target;  // offset - c_y
  float slope = 1;
  if (terms.softcap != 0) {
    const Capped at_target = capped(z_target, 1 / terms.softcap, terms.softcap);
    gap = at_target.below_cap - (terms.softcap - offset);
    slope = at_target.slope;
  }
  const float target = expf(-gap);
  const float sum = others + target;
  const float lse = offset + logf(sum);
  const float k = 2 * terms.z_weight * lse;
  RowEnd end;
  end.loss = gap < kFar ? log1pf(others / target) : gap + logf(sum);
  end.z_loss = terms.z_weight * lse * lse;
  end.factor = terms.grad_scale * (1 + k) / sum;
  end.target_e = (k * sum / (1 + k) - others) * slope;
  end.flags = (isfinite(end.loss) ? 0 : kLossNonFiniteLoss) |
              (slope < kSaturated ? kLossSaturatedTarget : 0);
  return end;
}

__device__ void store_end(
    const RowEnd& end, int top1, const LossRows& at, const LossResults& out, std::int64_t row) {
  out.loss[row] = end.loss;
  out.z_loss[row] = end.z_loss;
  out.factor[row] = end.factor;
  if (out.token_loss != nullptr) out.token_loss[at.rows[row]] = end.loss;
  if (out.token_top1 != nullptr) out.token_top1[at.rows[row]] = top1;
  if (end.flags != 0) atomicOr(out.flags, end.flags);
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) gather_rows_kernel(GatherRows<T> p, int parts) {
  const RowPart part = row_part(parts);
  const bool exists = part.row < p.at.valid;
  const std::int64_t source = exists ? p.at.rows[part.row] : 0;
  if (part.part == 0 && threadIdx.x == 0) {
    p.chunk_targets[part.row] = exists ? p.targets[source] : -1;
  }
  for_vectors<1, kPerThread>(part.part, p.hidden, [&](int, int column) {
    p.x_chunk[part.row * p.hidden + column] =
        exists ? p.x[source * p.hidden + column] : rounded<T>(0);
  });
}

// Calls body(k, i, column) for every logit of this thread's part of a tile that exists.
template <typename Body>
__device__ __forceinline__ void for_tile(std::int64_t tile, std::int64_t vocab, Body&& body) {
#pragma unroll
  for (int k = 0; k < kPassVectors; ++k) {
    const std::int64_t column = tile + (k * kPassThreads + threadIdx.x) * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < vocab) body(k, i, column + i);
    }
  }
}

__device__ __forceinline__ void load_tile(const float* z,
                                          std::int64_t tile,
                                          std::int64_t vocab,
                                          float (&v)[kPassVectors][4]) {
#pragma unroll
  for (int k = 0; k < kPassVectors; ++k) {
    const std::int64_t column = tile + (k * kPassThreads + threadIdx.x) * 4;
    if (column + 4 <= vocab) {
      load_floats(z + column, v[k]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[k][i] = column + i < vocab ? z[column + i] : 0;
    }
  }
}

template <typename T>
__device__ __forceinline__ void store_tile(T* e,
                                           std::int64_t tile,
                                           std::int64_t vocab,
                                           const float (&v)[kPassVectors][4]) {
#pragma unroll
  for (int k = 0; k < kPassVectors; ++k) {
    const std::int64_t column = tile + (k * kPassThreads + threadIdx.x) * 4;
    Vector<T, 4> out;
#pragma unroll
    for (int i = 0; i < 4; ++i) out.x[i] = rounded<T>(v[k][i]);
    if (column + 4 <= vocab) {
      store(e + column, out);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < vocab) e[column + i] = out.x[i];
      }
    }
  }
}

// The largest capped logit of a row, to every thread.
__device__ float largest_capped(const float* z, std::int64_t vocab, float softcap) {
  __shared__ float shared[kPassThreads / kWarp];
  float largest = -INFINITY;
  for (std::int64_t tile = 0; tile < vocab; tile += kPassTile) {
    float v[kPassVectors][4];
    load_tile(z, tile, vocab, v);
    for_tile(tile, vocab, [&](int k, int i, std::int64_t) { largest = fmaxf(largest, v[k][i]); });
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (int w = 0; w < kPassThreads / kWarp; ++w) largest = fmaxf(largest, shared[w]);
  return softcap == 0 ? largest : softcap * tanhf(largest / softcap);
}

// A block a row. E goes over z where it is narrower: a tile is read by all before it is written,
// and what is written lies in tiles that have been read.
template <typename T, bool kCapped>
__global__ void __launch_bounds__(kPassThreads) lm_head_pass_kernel(LossPass<T> p) {
  __shared__ float shared[kPassThreads / kWarp][1];
  const std::int64_t row = blockIdx.x;
  float* z = p.logits + row * p.row_elements;
  T* e = reinterpret_cast<T*>(z);
  const float cap = p.terms.softcap;
  const float inverse_cap = kCapped ? 1 / cap : 0;
  const std::int64_t target = p.chunk_targets[row];
  const bool has_target = target >= 0 && target < p.vocab;
  const float z_target = has_target ? z[target] : NAN;
  const float offset = kCapped && cap <= kLargestOffsetCap ? cap : largest_capped(z, p.vocab, cap);
  float others = 0, finite = 0;
  bool beaten = false;
  for (std::int64_t tile = 0; tile < p.vocab; tile += kPassTile) {
    float v[kPassVectors][4];
    load_tile(z, tile, p.vocab, v);
    if (p.with_grad) __syncthreads();
    for_tile(tile, p.vocab, [&](int k, int i, std::int64_t column) {
      const float x = v[k][i];
      finite = fmaf(x, 0.f, finite);  // NaN from inf and NaN on
      beaten |= x > z_target || (x == z_target && column < target);
      float value, slope = 1;
      if constexpr (kCapped) {
        const Capped c = capped(x, inverse_cap, cap);
        value = __expf(cap - offset - c.below_cap);
        slope = c.slope;
      } else {
        value = __expf(x - offset);
      }
      if (column == target) value = 0;
      others += value;
      v[k][i] = value * slope;
    });
    if (p.with_grad) store_tile(e, tile, p.vocab, v);
  }
  others = block_sum(others, shared);  // its barrier also orders the stores before E of the target
  const bool any_beaten = __syncthreads_or(beaten || z_target != z_target) != 0;
  const bool any_nonfinite = __syncthreads_or(!(finite == 0)) != 0;
  if (threadIdx.x != 0) return;
  RowEnd end = end_of_row(others, z_target, offset, p.terms);
  if (any_nonfinite) end.flags |= kLossNonFiniteLogit;
  store_end(end, any_beaten ? 0 : 1, p.at, p.out, row);
  if (p.with_grad && has_target) e[target] = rounded<T>(end.target_e);
}

__global__ void __launch_bounds__(kFinishRows* kFinishSegments) finish_kernel(LossFinish p) {
  __shared__ float shared_others[kFinishSegments][kFinishRows];
  __shared__ float shared_best[kFinishSegments][kFinishRows];
  __shared__ int shared_best_id[kFinishSegments][kFinishRows];
  const std::int64_t row = std::int64_t{blockIdx.x} * kFinishRows + threadIdx.x;
  const bool exists = row < p.at.valid;
  const std::int64_t tiles = ceil_div(p.vocab, kFusedColumns);
  const std::int64_t first = tiles * threadIdx.y / kFinishSegments;
  const std::int64_t end = tiles * (threadIdx.y + 1) / kFinishSegments;
  float others = 0, best = -INFINITY;
  int best_id = -1;
  if (exists) {
#pragma unroll 8
    for (std::int64_t t = first; t < end; ++t) others += p.partials.others[t * p.at.padded + row];
    if (p.partials.best != nullptr) {
      for (std::int64_t t = first; t < end; ++t) {
        const float value = p.partials.best[t * p.at.padded + row];
        if (!(value > best)) continue;
        best = value;
        best_id = p.partials.best_id[t * p.at.padded + row];
      }
    }
  }
  shared_others[threadIdx.y][threadIdx.x] = others;
  shared_best[threadIdx.y][threadIdx.x] = best;
  shared_best_id[threadIdx.y][threadIdx.x] = best_id;
  __syncthreads();
  if (threadIdx.y != 0 || !exists) return;
  for (int s = 1; s < kFinishSegments; ++s) {
    others += shared_others[s][threadIdx.x];
    if (!(shared_best[s][threadIdx.x] > best)) continue;
    best = shared_best[s][threadIdx.x];
    best_id = shared_best_id[s][threadIdx.x];
  }
  const std::int64_t target = p.chunk_targets[row];
  const bool has_target = target >= 0 && target < p.vocab;
  const float z_target = has_target ? p.partials.z_target[row] : NAN;
  const RowEnd result = end_of_row(others, z_target, p.terms.softcap, p.terms);
  store_end(result, best_id == target ? 1 : 0, p.at, p.out, row);
  if (p.e != nullptr && has_target) {
    p.e[row * p.e_row_elements + target] = rounded<__nv_bfloat16>(result.target_e);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) scatter_grad_x_kernel(ScatterGradX<T> p, int parts) {
  const RowPart part = row_part(parts);
  const float factor = p.factor[part.row];
  const float* product = p.product + part.row * p.hidden;
  T* out = p.grad_x + std::int64_t{p.at.rows[part.row]} * p.hidden;
  for_vectors<kWidth, kPerThread>(part.part, p.hidden, [&](int, int column) {
    float v[kWidth];
    load_floats(product + column, v);
    Vector<T, kWidth> grad;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) grad.x[j] = rounded<T>(factor * v[j]);
    store(out + column, grad);
  });
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) scale_rows_kernel(ScaleRows<T> p, int parts) {
  const RowPart part = row_part(parts);
  const float factor = p.factor[part.row];
  T* x = p.x + part.row * p.hidden;
  for_vectors<kWidth, kPerThread>(part.part, p.hidden, [&](int, int column) {
    auto v = load<kWidth>(x + column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v.x[j] = rounded<T>(factor * to_float(v.x[j]));
    store(x + column, v);
  });
}

__global__ void __launch_bounds__(kSumThreads) add_loss_sums_kernel(AddLossSums p) {
  __shared__ double shared[kSumThreads / kWarp][2];
  double sums[2] = {};
  for (std::int64_t i = threadIdx.x; i < p.count; i += kSumThreads) {
    sums[0] += p.loss[i];
    sums[1] += p.z_loss[i];
  }
  block_sums(sums, shared);
  if (threadIdx.x == 0) {
    p.sums[0] += sums[0];
    p.sums[1] += sums[1];
  }
}

__global__ void __launch_bounds__(kRowThreads) softcap_logits_kernel(SoftcapLogits p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i < p.count) p.logits[i] = p.softcap * tanhf(p.logits[i] / p.softcap);
}

}  // namespace

template <typename T>
cudaError_t gather_rows(const GatherRows<T>& p, cudaStream_t stream) {
  if (p.at.valid < 0 || p.at.valid > p.at.padded || p.hidden < 1) return cudaErrorInvalidValue;
  if (p.at.padded == 0) return cudaSuccess;
  const RowGrid grid = row_grid(p.at.padded, p.hidden, 1, kPerThread, kRowThreads);
  gather_rows_kernel<<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  return cudaGetLastError();
}

template <typename T>
cudaError_t lm_head_pass(const LossPass<T>& p, cudaStream_t stream) {
  const bool valid = p.at.valid >= 0 && p.vocab >= 1 && p.row_elements >= p.vocab &&
                     p.row_elements % 4 == 0 && are_aligned(16, p.logits) && p.terms.softcap >= 0;
  if (!valid) return cudaErrorInvalidValue;
  if (p.at.valid == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(p.at.valid);
  if (p.terms.softcap > 0) {
    lm_head_pass_kernel<T, true><<<blocks, kPassThreads, 0, stream>>>(p);
  } else {
    lm_head_pass_kernel<T, false><<<blocks, kPassThreads, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

cudaError_t lm_head_finish(const LossFinish& p, cudaStream_t stream) {
  if (p.at.valid < 0 || p.at.valid > p.at.padded || p.vocab < 1) return cudaErrorInvalidValue;
  if (p.at.valid == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(p.at.valid, kFinishRows));
  finish_kernel<<<blocks, dim3(kFinishRows, kFinishSegments), 0, stream>>>(p);
  return cudaGetLastError();
}

template <typename T>
cudaError_t scatter_grad_x(const ScatterGradX<T>& p, cudaStream_t stream) {
  if (p.at.valid < 0 || p.hidden < 1) return cudaErrorInvalidValue;
  if (p.at.valid == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.hidden, p.grad_x) && are_aligned(16, p.product);
  const RowGrid grid = row_grid(p.at.valid, p.hidden, wide ? kWide<T> : 1, kPerThread, kRowThreads);
  if (wide) {
    scatter_grad_x_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    scatter_grad_x_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t scale_rows(const ScaleRows<T>& p, cudaStream_t stream) {
  if (p.rows < 0 || p.hidden < 1) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  const bool wide = is_wide<T>(p.hidden, p.x);
  const RowGrid grid = row_grid(p.rows, p.hidden, wide ? kWide<T> : 1, kPerThread, kRowThreads);
  if (wide) {
    scale_rows_kernel<T, kWide<T>><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  } else {
    scale_rows_kernel<T, 1><<<grid.blocks, grid.threads, 0, stream>>>(p, grid.parts);
  }
  return cudaGetLastError();
}

cudaError_t add_loss_sums(const AddLossSums& p, cudaStream_t stream) {
  if (p.count < 0) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  add_loss_sums_kernel<<<1, kSumThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t softcap_logits(const SoftcapLogits& p, cudaStream_t stream) {
  if (p.count < 0 || !(p.softcap > 0)) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(p.count, kRowThreads));
  softcap_logits_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template cudaError_t gather_rows(const GatherRows<float>&, cudaStream_t);
template cudaError_t gather_rows(const GatherRows<__nv_bfloat16>&, cudaStream_t);
template cudaError_t lm_head_pass(const LossPass<float>&, cudaStream_t);
template cudaError_t lm_head_pass(const LossPass<__nv_bfloat16>&, cudaStream_t);
template cudaError_t scatter_grad_x(const ScatterGradX<float>&, cudaStream_t);
template cudaError_t scatter_grad_x(const ScatterGradX<__nv_bfloat16>&, cudaStream_t);
template cudaError_t scale_rows(const ScaleRows<float>&, cudaStream_t);
template cudaError_t scale_rows(const ScaleRows<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
