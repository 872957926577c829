#include "tensor/tensor.h"

#include "base/text.h"

namespace g2 {

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  assert(rank >= 1 && begin >= 0 && begin <= end && end <= shape[0]);
  Tensor view = *this;
  const std::int64_t row = shape[0] == 0 ? 0 : size() / shape[0];
  view.data = static_cast<char*>(data) + static_cast<std::size_t>(begin * row) * dtype_bytes(dtype);
  view.shape[0] = end - begin;
  return view;
}

Tensor Tensor::reshaped(std::initializer_list<std::int64_t> new_shape) const {
  const Tensor view(data, dtype, new_shape);
  assert(view.size() == size());
  return view;
}

std::string Tensor::describe() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += base::cat(i == 0 ? "" : ", ", shape[i]);
  return base::cat(text, "] ", dtype_name(dtype));
}

}  // namespace g2
