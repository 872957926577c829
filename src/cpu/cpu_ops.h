// CpuOps: every op of tensor/ops.h on the CPU in f64, f32 and bf16. The reference for other
// backends.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "tensor/ops.h"

namespace g2::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(base::ThreadPool& pool);
  ~CpuOps() override;

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
  struct Memory;  // growing scratch of the ops
  base::ThreadPool& pool_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace g2::cpu
