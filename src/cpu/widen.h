// bf16 tensors as floats for the matrix products, and back; other types as they are.
#pragma once

#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace g2::cpu {

inline constexpr std::int64_t kCastGrain = 16384;  // elements a task converts

// x itself where its type T computes in itself, otherwise a widened copy in `scratch`'s slot.
template <typename T, typename ScratchOfA>
const Work<T>* widened(base::ThreadPool& pool, const Tensor& x, ScratchOfA& scratch, int slot) {
  using A = Work<T>;
  if constexpr (std::is_same_v<T, A>) {
    return x.as<T>();
  } else {
    A* wide = scratch.get(slot, static_cast<std::size_t>(x.size()));
    pool.run_ranges(x.size(), kCastGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) wide[i] = A(x.as<T>()[i]);
    });
    return wide;
  }
}

// Where to compute y in A: y itself, or `scratch`'s slot. narrow() then finishes it.
template <typename T, typename ScratchOfA>
Work<T>* narrow_target(const Tensor& y, ScratchOfA& scratch, int slot) {
  if constexpr (std::is_same_v<T, Work<T>>) {
    return y.as<T>();
  } else {
    return scratch.get(slot, static_cast<std::size_t>(y.size()));
  }
}

// y = cast_T(wide), unless wide is y.
template <typename T>
void narrow(base::ThreadPool& pool, const Work<T>* wide, const Tensor& y) {
  if constexpr (!std::is_same_v<T, Work<T>>) {
    pool.run_ranges(y.size(), kCastGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y.as<T>()[i] = T(wide[i]);
    });
  }
}

}  // namespace g2::cpu
