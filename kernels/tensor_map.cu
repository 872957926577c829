#include "kernels/tensor_map.h"

#include <cudaTypedefs.h>

namespace g2::kernels {
namespace {

// The driver's encoder, found through the runtime so that nothing links libcuda; null without one.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

constexpr int kPanel = 64;  // columns that fill the 128 bytes of the swizzle

// `strides` are of all dimensions but the first, in bytes.
cudaError_t encode(const __nv_bfloat16* data,
                   int rank,
                   const cuuint64_t* sizes,
                   const cuuint64_t* strides,
                   const cuuint32_t* box,
                   CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = find_encoder();
  if (encoder == nullptr) return cudaErrorNotSupported;
  const cuuint32_t every_element[] = {1, 1, 1, 1};
  const CUresult result = encoder(map,
                                  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                  static_cast<cuuint32_t>(rank),
                                  const_cast<__nv_bfloat16*>(data),
                                  sizes,
                                  strides,
                                  box,
                                  every_element,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t encode_tensor_map(const HeadMatrix& matrix, int box_rows, CUtensorMap* map) {
  const auto panels = static_cast<cuuint32_t>(matrix.head_dim / kPanel);
  const cuuint64_t sizes[] = {kPanel,
                              static_cast<cuuint64_t>(matrix.tokens),
                              panels,
                              static_cast<cuuint64_t>(matrix.heads)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_elements) * 2,
                                kPanel * 2,
                                static_cast<cuuint64_t>(matrix.head_dim) * 2};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(box_rows), panels, 1};
  return encode(matrix.data, 4, sizes, strides, box, map);
}

cudaError_t encode_tensor_map(const Matrix& matrix, int box_rows, CUtensorMap* map) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.columns),
                              static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_elements) * 2};
  const cuuint32_t box[] = {kPanel, static_cast<cuuint32_t>(box_rows)};
  return encode(matrix.data, 2, sizes, strides, box, map);
}

}  // namespace g2::kernels
