// CudaOps: every op of tensor/ops.h on an NVIDIA GPU, in f32 and bf16 (cast also f64). All work
// goes to the device's stream; nothing waits for it, and nothing is allocated once each op has run
// at its largest size.
#pragma once

#include <filesystem>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/matmul.h"
#include "tensor/ops.h"

namespace g2::cuda {

class CudaOps final : public Ops {
 public:
  // plan_file: see Matmul; empty for commands whose speed does not matter. The device outlives
  // this.
  explicit CudaOps(CudaDevice& device, std::filesystem::path plan_file = {});

  void embedding_forward(const EmbeddingForward& p) override;
  void embedding_backward(const EmbeddingBackward& p) override;
  void rmsnorm_forward(const RmsnormForward& p) override;
  void rmsnorm_add_forward(const RmsnormAddForward& p) override;
  void rmsnorm_backward(const RmsnormBackward& p) override;
  void rope(const Rope& p) override;
  void attention_forward(const AttentionForward& p) override;
  void attention_backward(const AttentionBackward& p) override;
  void geglu_forward(const GegluForward& p) override;
  void geglu_backward(const GegluBackward& p) override;
  void linear_forward(const LinearForward& p) override;
  void linear_dgrad(const LinearDgrad& p) override;
  void linear_wgrad(const LinearWgrad& p) override;
  void lm_head_loss(const LmHeadLoss& p) override;
  void lm_head_logits(const LmHeadLogits& p) override;
  void block_sums_of_squares(const BlockSumsOfSquares& p) override;
  void clip_factor(const ClipFactor& p) override;
  void adamw(const Adamw& p) override;
  void cast(const Cast& p) override;
  void fill_normal(const FillNormal& p) override;
  std::size_t lm_head_workspace_bytes(DType dtype,
                                      std::int64_t tokens,
                                      std::int64_t hidden,
                                      std::int64_t vocab,
                                      std::size_t budget_bytes,
                                      bool with_grad) const override;

 private:
  Tensor rows_with_target(const LmHeadLoss& p);
  void clear_ignored(const LmHeadLoss& p, std::int64_t valid);

  // At least `bytes` from now on, contents undefined.
  void grow(Buffer& buffer, std::size_t bytes);

  CudaDevice& device_;
  Matmul matmul_;
  Buffer norm_workspace_;  // of rmsnorm_backward; grows to the largest call
  Buffer rows_;            // rows_with_target(), where the caller gave none
};

}  // namespace g2::cuda
