// A block a row, the row in registers: every element is read once and written once.
#include "kernels/rmsnorm.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kMaxRuns = 768;  // runs of rows whose grad_w is summed apart; fills a Hopper GPU

// Vectors of a row in a thread, and threads that hold the longest row.
template <int kWidth>
constexpr int kPerThread = kWidth == 1 ? 8 : 2;
template <int kWidth>
constexpr int kMaxThreads = kMaxNormHidden / (kPerThread<kWidth> * kWidth);
template <int kWidth>
constexpr int kWarps = kMaxThreads<kWidth> / kWarp;

template <typename T, int kWidth>
using Row = Vector<T, kWidth>[kPerThread<kWidth>];

template <int kWidth, typename Body>
__device__ __forceinline__ void for_row(int hidden, Body&& body) {
  for_vectors<kWidth, kPerThread<kWidth>>(0, hidden, body);
}

template <typename T, int kWidth>
__device__ __forceinline__ void load_row(const T* from, int hidden, Row<T, kWidth>& row) {
  for_row<kWidth>(hidden, [&](int i, int column) { row[i] = load<kWidth>(from + column); });
}

template <typename T, int kWidth>
__device__ __forceinline__ float inverse_rms(const Row<T, kWidth>& row,
                                             int hidden,
                                             float eps,
                                             float (*shared)[1]) {
  float sum = 0;
  for_row<kWidth>(hidden, [&](int i, int) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float x = to_float(row[i].x[j]);
      sum = fmaf(x, x, sum);
    }
  });
  return 1 / sqrtf(block_sum(sum, shared) / static_cast<float>(hidden) + eps);
}

// y = cast_T(row r (1 + w)), written over the row.
template <typename T, int kWidth>
__device__ __forceinline__ void normalise(
    Row<T, kWidth>& row, const Row<T, kWidth>& w, float r, int hidden, T* y) {
  for_row<kWidth>(hidden, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      row[i].x[j] = rounded<T>(to_float(row[i].x[j]) * r * (1 + to_float(w[i].x[j])));
    }
    store(y + column, row[i]);
  });
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads<kWidth>) rmsnorm_forward_kernel(RmsnormForward<T> p) {
  __shared__ float shared[kWarps<kWidth>][1];
  const std::int64_t offset = std::int64_t{blockIdx.x} * p.hidden;
  Row<T, kWidth> row, w;
  load_row<T, kWidth>(p.x + offset, p.hidden, row);
  load_row<T, kWidth>(p.w, p.hidden, w);
  const float r = inverse_rms<T, kWidth>(row, p.hidden, p.eps, shared);
  if (threadIdx.x == 0) p.r[blockIdx.x] = r;
  normalise<T, kWidth>(row, w, r, p.hidden, p.y + offset);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads<kWidth>)
    rmsnorm_add_forward_kernel(RmsnormAddForward<T> p) {
  __shared__ float shared_post[kWarps<kWidth>][1], shared_pre[kWarps<kWidth>][1];
  const std::int64_t offset = std::int64_t{blockIdx.x} * p.hidden;
  Row<T, kWidth> row, residual, w;
  load_row<T, kWidth>(p.branch + offset, p.hidden, row);
  load_row<T, kWidth>(p.residual + offset, p.hidden, residual);
  load_row<T, kWidth>(p.w_post, p.hidden, w);
  const float r_post = inverse_rms<T, kWidth>(row, p.hidden, p.eps, shared_post);
  for_row<kWidth>(p.hidden, [&](int i, int column) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float branch = to_float(row[i].x[j]) * r_post * (1 + to_float(w[i].x[j]));
      row[i].x[j] = rounded<T>(to_float(residual[i].x[j]) + branch);
    }
    store(p.sum + offset + column, row[i]);
  });
  load_row<T, kWidth>(p.w_pre, p.hidden, w);
  const float r_pre = inverse_rms<T, kWidth>(row, p.hidden, p.eps, shared_pre);
  if (threadIdx.x == 0) {
    p.r_post[blockIdx.x] = r_post;
    p.r_pre[blockIdx.x] = r_pre;
  }
  normalise<T, kWidth>(row, w, r_pre, p.hidden, p.y + offset);
}

// The next row is loaded only after this one's sum: other blocks of the multiprocessor fill the
// gap.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads<kWidth>)
    rmsnorm_backward_kernel(RmsnormBackward<T> p, int rows_per_run) {
  __shared__ float shared[2][kWarps<kWidth>]
                         [1];  // two buffers: the barrier of one sum frees the other
  Row<T, kWidth> w;
  load_row<T, kWidth>(p.w, p.hidden, w);
  float grad_w[kPerThread<kWidth>][kWidth] = {};
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_run;
  const std::int64_t end = min(first + rows_per_run, p.tokens);
  for (std::int64_t token = first; token < end; ++token) {
    const std::int64_t offset = token * p.hidden;
    Row<T, kWidth> grad_y, x, residual;
    load_row<T, kWidth>(p.grad_y + offset, p.hidden, grad_y);
    load_row<T, kWidth>(p.x + offset, p.hidden, x);
    if (p.residual != nullptr) load_row<T, kWidth>(p.residual + offset, p.hidden, residual);
    const float r = p.r[token];
    float dot = 0;  // sum_j g_j x_j
    for_row<kWidth>(p.hidden, [&](int i, int) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float product = to_float(grad_y[i].x[j]) * to_float(x[i].x[j]);
        dot = fmaf(product, 1 + to_float(w[i].x[j]), dot);
        grad_w[i][j] = fmaf(product, r, grad_w[i][j]);
      }
    });
    const float mean = block_sum(dot, shared[token % 2]) / static_cast<float>(p.hidden);
    const float slope = r * r * r * mean;
    for_row<kWidth>(p.hidden, [&](int i, int column) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = to_float(grad_y[i].x[j]) * (1 + to_float(w[i].x[j]));
        float grad = r * g - to_float(x[i].x[j]) * slope;
        if (p.residual != nullptr) grad += to_float(residual[i].x[j]);
        grad_y[i].x[j] = rounded<T>(grad);
      }
      store(p.grad_x + offset + column, grad_y[i]);
    });
  }
  float* partial = p.workspace + std::int64_t{blockIdx.x} * p.hidden;
  for_row<kWidth>(p.hidden, [&](int i, int column) { store_floats(partial + column, grad_w[i]); });
}

// grad_w (+)= sum of `runs` rows of the workspace: 16 threads a column, each every 16th row.
constexpr int kSumColumns = 32;
constexpr int kSumRows = 16;

__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_runs_kernel(const float* partial, int runs, int hidden, float* grad_w, bool accumulate) {
  __shared__ float shared[kSumRows][kSumColumns];
  const int column = static_cast<int>(blockIdx.x) * kSumColumns + threadIdx.x;
  float sum = 0;
  if (column < hidden) {
#pragma unroll 8
    for (int run = threadIdx.y; run < runs; run += kSumRows) {
      sum += partial[std::int64_t{run} * hidden + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= hidden) return;
  float total = accumulate ? grad_w[column] : 0;
  for (int k = 0; k < kSumRows; ++k) total += shared[k][threadIdx.x];
  grad_w[column] = total;
}

std::int64_t rows_per_run(std::int64_t tokens) {
  return ceil_div(tokens, kMaxRuns);
}

bool is_valid(std::int64_t tokens, int hidden) {
  return tokens >= 0 && tokens < (std::int64_t{1} << 31) && hidden >= 1 && hidden <= kMaxNormHidden;
}

template <int kWidth>
int threads_of(int hidden) {
  return row_grid(1, hidden, kWidth, kPerThread<kWidth>, kMaxThreads<kWidth>).threads;
}

template <typename T, int kWidth>
cudaError_t launch_backward(const RmsnormBackward<T>& p, cudaStream_t stream) {
  const std::int64_t rows = rows_per_run(p.tokens);
  const int runs = static_cast<int>(ceil_div(p.tokens, rows));
  rmsnorm_backward_kernel<T, kWidth>
      <<<runs, threads_of<kWidth>(p.hidden), 0, stream>>>(p, static_cast<int>(rows));
  const dim3 block(kSumColumns, kSumRows);
  sum_runs_kernel<<<static_cast<unsigned>(ceil_div(p.hidden, kSumColumns)), block, 0, stream>>>(
      p.workspace, runs, p.hidden, p.grad_w, p.accumulate_grad_w);
  return cudaGetLastError();
}

}  // namespace

std::size_t rmsnorm_backward_workspace_bytes(std::int64_t tokens, int hidden) {
  if (tokens <= 0) return 0;
  const std::int64_t runs = ceil_div(tokens, rows_per_run(tokens));
  return static_cast<std::size_t>(runs * hidden) * sizeof(float);
}

template <typename T>
cudaError_t rmsnorm_forward(const RmsnormForward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.hidden)) return cudaErrorInvalidValue;
  if (p.tokens == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(p.tokens);
  if (is_wide<T>(p.hidden, p.x, p.w, p.y)) {
    constexpr int kWidth = kWide<T>;
    rmsnorm_forward_kernel<T, kWidth><<<blocks, threads_of<kWidth>(p.hidden), 0, stream>>>(p);
  } else {
    rmsnorm_forward_kernel<T, 1><<<blocks, threads_of<1>(p.hidden), 0, stream>>>(p);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t rmsnorm_add_forward(const RmsnormAddForward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.hidden)) return cudaErrorInvalidValue;
  if (p.tokens == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(p.tokens);
  if (is_wide<T>(p.hidden, p.branch, p.w_post, p.residual, p.w_pre, p.sum, p.y)) {
    constexpr int kWidth = kWide<T>;
    rmsnorm_add_forward_kernel<T, kWidth><<<blocks, threads_of<kWidth>(p.hidden), 0, stream>>>(p);
  } else {
    rmsnorm_add_forward_kernel<T, 1><<<blocks, threads_of<1>(p.hidden), 0, stream>>>(p);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t rmsnorm_backward(const RmsnormBackward<T>& p, cudaStream_t stream) {
  if (!is_valid(p.tokens, p.hidden)) return cudaErrorInvalidValue;
  if (p.tokens == 0) {
    const std::size_t bytes = static_cast<std::size_t>(p.hidden) * sizeof(float);
    return p.accumulate_grad_w ? cudaSuccess : cudaMemsetAsync(p.grad_w, 0, bytes, stream);
  }
  if (is_wide<T>(p.hidden, p.grad_y, p.x, p.w, p.residual, p.grad_x)) {
    return launch_backward<T, kWide<T>>(p, stream);
  }
  return launch_backward<T, 1>(p, stream);
}

template cudaError_t rmsnorm_forward(const RmsnormForward<float>&, cudaStream_t);
template cudaError_t rmsnorm_forward(const RmsnormForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t rmsnorm_add_forward(const RmsnormAddForward<float>&, cudaStream_t);
template cudaError_t rmsnorm_add_forward(const RmsnormAddForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t rmsnorm_backward(const RmsnormBackward<float>&, cudaStream_t);
template cudaError_t rmsnorm_backward(const RmsnormBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
