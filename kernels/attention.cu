// Checks of the contract, and the choice among the paths.
#include "kernels/attention.h"

#include "kernels/attention_detail.h"

namespace g2::kernels {
namespace {

bool is_valid(const AttentionShape& s) {
  return s.tokens >= 0 && s.kv_heads >= 1 && s.q_heads >= s.kv_heads &&
         s.q_heads % s.kv_heads == 0 && s.head_dim >= 1 && s.head_dim <= 256 && s.softcap >= 0;
}

}  // namespace

template <typename T>
cudaError_t choose_attention_path(const AttentionShape&, AttentionPath* path) {
  *path = AttentionPath::kSimt;
  return cudaSuccess;
}

template <typename T>
cudaError_t attention_forward(const AttentionForward<T>& p,
                              AttentionPath path,
                              cudaStream_t stream) {
  if (!is_valid(p.shape)) return cudaErrorInvalidValue;
  if (p.shape.tokens == 0) return cudaSuccess;
  switch (path) {
    case AttentionPath::kSimt:
      return detail::attention_forward_simt(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t attention_backward(const AttentionBackward<T>& p,
                               AttentionPath path,
                               cudaStream_t stream) {
  if (!is_valid(p.shape)) return cudaErrorInvalidValue;
  if (p.shape.tokens == 0) return cudaSuccess;
  if (const cudaError_t error = detail::attention_delta(p, stream); error != cudaSuccess) {
    return error;
  }
  switch (path) {
    case AttentionPath::kSimt:
      return detail::attention_backward_simt(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t attention_forward(const AttentionForward<T>& p, cudaStream_t stream) {
  AttentionPath path;
  const cudaError_t error = choose_attention_path<T>(p.shape, &path);
  return error == cudaSuccess ? attention_forward(p, path, stream) : error;
}

template <typename T>
cudaError_t attention_backward(const AttentionBackward<T>& p, cudaStream_t stream) {
  AttentionPath path;
  const cudaError_t error = choose_attention_path<T>(p.shape, &path);
  return error == cudaSuccess ? attention_backward(p, path, stream) : error;
}

template cudaError_t choose_attention_path<float>(const AttentionShape&, AttentionPath*);
template cudaError_t choose_attention_path<__nv_bfloat16>(const AttentionShape&, AttentionPath*);
template cudaError_t attention_forward(const AttentionForward<float>&, AttentionPath, cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<__nv_bfloat16>&,
                                       AttentionPath,
                                       cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<float>&,
                                        AttentionPath,
                                        cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<__nv_bfloat16>&,
                                        AttentionPath,
                                        cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<float>&, cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<__nv_bfloat16>&, cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<__nv_bfloat16>&, cudaStream_t);

}  // namespace g2::kernels
