// Tensor: a plain view of dense row-major memory on some device. It owns nothing.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/dtype.h"

namespace g2 {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, 4> shape{};

  Tensor() = default;
  Tensor(void* data_in, DType dtype_in, std::initializer_list<std::int64_t> shape_in)
      : data(data_in), dtype(dtype_in), rank(static_cast<int>(shape_in.size())) {
    int i = 0;
    for (const std::int64_t extent : shape_in) shape[i++] = extent;
  }

  explicit operator bool() const { return data != nullptr; }
  std::int64_t dim(int i) const { return shape[i]; }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * dtype_bytes(dtype); }

  // Typed pointer; T must be the element type.
  template <typename T>
  T* as() const {
    assert(dtype == dtype_of<T>());
    return static_cast<T*>(data);
  }

  // Rows [begin, end) along the first axis.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  // The same memory under another shape of equal size.
  Tensor reshaped(std::initializer_list<std::int64_t> new_shape) const;
  // "[8192, 2304] bf16", for messages.
  std::string describe() const;
};

}  // namespace g2
