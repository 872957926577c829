// What the memory-bound kernels share: wide accesses, how rows are cut into blocks, block sums.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace g2::kernels {

constexpr int kWarp = 32;

// Elements of T in one 16-byte access.
template <typename T>
constexpr int kWide = 16 / sizeof(T);

// kWidth neighbouring elements, moved in one access where they fill 16 bytes.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vector {
  T x[kWidth];
};

template <int kWidth, typename T>
__device__ __forceinline__ Vector<T, kWidth> load(const T* p) {
  return *reinterpret_cast<const Vector<T, kWidth>*>(p);
}
template <typename T, int kWidth>
__device__ __forceinline__ void store(T* p, const Vector<T, kWidth>& v) {
  *reinterpret_cast<Vector<T, kWidth>*>(p) = v;
}

// kWidth floats, 16 bytes at a time where the width allows it.
template <int kWidth>
__device__ __forceinline__ void load_floats(const float* p, float (&out)[kWidth]) {
  constexpr int kStep = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < kWidth; i += kStep) {
    const auto v = load<kStep>(p + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j) out[i + j] = v.x[j];
  }
}
template <int kWidth>
__device__ __forceinline__ void store_floats(float* p, const float (&in)[kWidth]) {
  constexpr int kStep = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < kWidth; i += kStep) {
    Vector<float, kStep> v;
#pragma unroll
    for (int j = 0; j < kStep; ++j) v.x[j] = in[i + j];
    store(p + i, v);
  }
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// Rounds to T, to nearest even.
template <typename T>
__device__ __forceinline__ T rounded(float x);
template <>
__device__ __forceinline__ float rounded<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 rounded<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

__host__ __device__ inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

template <typename... Pointers>
bool are_aligned(std::size_t bytes, const Pointers*... pointers) {
  return (reinterpret_cast<std::uintptr_t>(pointers) | ...) % bytes == 0;
}

// Whether rows of `width` elements from these pointers can be moved 16 bytes at a time.
template <typename T, typename... Pointers>
bool is_wide(std::int64_t width, const Pointers*... pointers) {
  return width % kWide<T> == 0 && are_aligned(16, pointers...);
}

// A grid over the elements of rows: each row is `parts` blocks, each thread has kPerThread vectors
// of kWidth elements, a block's width apart.
struct RowGrid {
  unsigned blocks;
  int threads;
  int parts;
};

inline RowGrid row_grid(
    std::int64_t rows, std::int64_t width, int vector_width, int per_thread, int max_threads) {
  const std::int64_t vectors = ceil_div(width, vector_width);
  const std::int64_t parts = ceil_div(vectors, std::int64_t{max_threads} * per_thread);
  const std::int64_t threads = ceil_div(ceil_div(vectors, parts), per_thread);
  return {static_cast<unsigned>(rows * parts),
          static_cast<int>(ceil_div(threads, kWarp) * kWarp),
          static_cast<int>(parts)};
}

// This block's row, and calls body(i, column) for each of this thread's vectors of that row.
struct RowPart {
  std::int64_t row;
  int part;
};

__device__ __forceinline__ RowPart row_part(int parts) {
  return {blockIdx.x / static_cast<unsigned>(parts),
          static_cast<int>(blockIdx.x % static_cast<unsigned>(parts))};
}

template <int kWidth, int kPerThread, typename Body>
__device__ __forceinline__ void for_vectors(int part, int width, Body&& body) {
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int vector = (part * kPerThread + i) * static_cast<int>(blockDim.x) + threadIdx.x;
    const int column = vector * kWidth;
    if (column < width) body(i, column);
  }
}

template <typename A>
__device__ __forceinline__ A warp_sum(A x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Sums kCount values over the block, to every thread, in a fixed tree: lanes, then warps in order.
// One barrier; the same `shared` may be used again only after another one.
template <int kCount, typename A>
__device__ __forceinline__ void block_sums(A (&values)[kCount], A (*shared)[kCount]) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = warp_sum(values[k]);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp][k] = values[k];
    values[k] = 0;
  }
  __syncthreads();
  for (int w = 0; w < warps; ++w) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) values[k] += shared[w][k];
  }
}

template <typename A>
__device__ __forceinline__ A block_sum(A value, A (*shared)[1]) {
  A values[1] = {value};
  block_sums(values, shared);
  return values[0];
}

}  // namespace g2::kernels
