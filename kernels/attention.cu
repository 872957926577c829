// Checks of the contract, and the choice among the paths.
#include "kernels/attention.h"

#include <type_traits>

#include "kernels/attention_detail.h"

namespace g2::kernels {
namespace {

using Bf16 = __nv_bfloat16;

bool is_valid(const AttentionShape& s) {
  constexpr std::int64_t kMaxTokens =
      (std::int64_t{1} << 31) - 128;  // row numbers of a tile are int
  return s.tokens >= 0 && s.tokens < kMaxTokens && s.kv_heads >= 1 && s.q_heads >= s.kv_heads &&
         s.q_heads % s.kv_heads == 0 && s.head_dim >= 1 && s.head_dim <= 256 && s.softcap >= 0;
}

// Whether T, the sizes and the constants suit the path; whether the device does is another
// question.
template <typename T>
bool covers(AttentionPath path, const AttentionShape& s) {
  if (path == AttentionPath::kSimt) return true;
  if (!std::is_same_v<T, Bf16> || !detail::has_tensor_core_head_dim(s)) return false;
  return path == AttentionPath::kMma || detail::has_fixed_maximum(s);
}

}  // namespace

template <typename T>
cudaError_t choose_attention_path(const AttentionShape& shape, AttentionPath* path) {
  int device = 0, major = 0, shared_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  if (major == 9 && covers<T>(AttentionPath::kWgmma, shape)) {
    *path = AttentionPath::kWgmma;
  } else if (covers<T>(AttentionPath::kMma, shape) &&
             shared_bytes >= detail::attention_mma_shared_bytes(shape.head_dim)) {
    *path = AttentionPath::kMma;
  } else {
    *path = AttentionPath::kSimt;
  }
  return cudaSuccess;
}

template <typename T>
cudaError_t attention_forward(const AttentionForward<T>& p,
                              AttentionPath path,
                              cudaStream_t stream) {
  if (!is_valid(p.shape)) return cudaErrorInvalidValue;
  if (!covers<T>(path, p.shape)) return cudaErrorNotSupported;
  if (p.shape.tokens == 0) return cudaSuccess;
  if constexpr (std::is_same_v<T, Bf16>) {
    if (path == AttentionPath::kWgmma) return detail::attention_forward_wgmma(p, stream);
    if (path == AttentionPath::kMma) return detail::attention_forward_mma(p, stream);
  }
  return detail::attention_forward_simt(p, stream);
}

template <typename T>
cudaError_t attention_backward(const AttentionBackward<T>& p,
                               AttentionPath path,
                               cudaStream_t stream) {
  if (!is_valid(p.shape)) return cudaErrorInvalidValue;
  if (!covers<T>(path, p.shape)) return cudaErrorNotSupported;
  if (p.shape.tokens == 0) return cudaSuccess;
  cudaError_t error = detail::attention_delta(p, stream);
  if (error != cudaSuccess) return error;
  if constexpr (std::is_same_v<T, Bf16>) {
    if (path == AttentionPath::kWgmma) {
      error = detail::attention_dq_wgmma(p, stream);
      return error == cudaSuccess ? detail::attention_dkdv_wgmma(p, stream) : error;
    }
    if (path == AttentionPath::kMma) {
      error = detail::attention_dq_mma(p, stream);
      return error == cudaSuccess ? detail::attention_dkdv_mma(p, stream) : error;
    }
  }
  error = detail::attention_dq_simt(p, stream);
  return error == cudaSuccess ? detail::attention_dkdv_simt(p, stream) : error;
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
template cudaError_t choose_attention_path<Bf16>(const AttentionShape&, AttentionPath*);
template cudaError_t attention_forward(const AttentionForward<float>&, AttentionPath, cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<Bf16>&, AttentionPath, cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<float>&,
                                        AttentionPath,
                                        cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<Bf16>&,
                                        AttentionPath,
                                        cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<float>&, cudaStream_t);
template cudaError_t attention_forward(const AttentionForward<Bf16>&, cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<float>&, cudaStream_t);
template cudaError_t attention_backward(const AttentionBackward<Bf16>&, cudaStream_t);

}  // namespace g2::kernels
