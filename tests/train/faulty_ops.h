// Ops with one mistake put in, for the test that a convergence test can fail.
#pragma once

#include <vector>

#include "tensor/ops.h"

namespace g2::test {

enum class Fault {
  kNone,
  kOwnAttentionBackward,      // none: this file's attention backward, complete
  kNoCapInAttentionBackward,  // the same without its factor 1 - t^2
  kGainWithoutOne,            // norms multiply by w instead of 1 + w
  kMeanPerMicroBatch,         // the loss is the mean of the micro-batches' means
  kNoHeadGradient,            // the tied embedding gets no gradient from the head
  kInterleavedRope,           // pairs (2i, 2i + 1) instead of (i, i + h/2)
  kDecayedNorms,              // weight decay on norm weights too
};

struct FaultSettings {
  Fault fault = Fault::kNone;
  std::int64_t micro_batches = 1;        // of a step
  std::int64_t embedding_elements = 0;   // tells the embedding's undecayed range from norms'
  double weight_decay = 0;               // of the other weights
  bool smallest_lm_head_chunks = false;  // no fault: as little workspace as will do
};

// Host memory in f32 or f64 only.
class FaultyOps final : public Ops {
 public:
  FaultyOps(Ops& inner, const FaultSettings& settings) : inner_(inner), settings_(settings) {}

  void embedding_forward(const EmbeddingForward& p) override { inner_.embedding_forward(p); }
  void embedding_backward(const EmbeddingBackward& p) override { inner_.embedding_backward(p); }
  void rmsnorm_forward(const RmsnormForward& p) override;
  void rmsnorm_add_forward(const RmsnormAddForward& p) override;
  void rmsnorm_backward(const RmsnormBackward& p) override;
  void rope(const Rope& p) override;
  void attention_forward(const AttentionForward& p) override { inner_.attention_forward(p); }
  void attention_backward(const AttentionBackward& p) override;
  void geglu_forward(const GegluForward& p) override { inner_.geglu_forward(p); }
  void geglu_backward(const GegluBackward& p) override { inner_.geglu_backward(p); }
  void linear_forward(const LinearForward& p) override { inner_.linear_forward(p); }
  void linear_dgrad(const LinearDgrad& p) override { inner_.linear_dgrad(p); }
  void linear_wgrad(const LinearWgrad& p) override { inner_.linear_wgrad(p); }
  void lm_head_loss(const LmHeadLoss& p) override;
  void lm_head_logits(const LmHeadLogits& p) override { inner_.lm_head_logits(p); }
  void block_sums_of_squares(const BlockSumsOfSquares& p) override {
    inner_.block_sums_of_squares(p);
  }
  void clip_factor(const ClipFactor& p) override { inner_.clip_factor(p); }
  void adamw(const Adamw& p) override;
  void cast(const Cast& p) override { inner_.cast(p); }
  void fill_normal(const FillNormal& p) override { inner_.fill_normal(p); }
  std::size_t lm_head_workspace_bytes(DType dtype,
                                      std::int64_t tokens,
                                      std::int64_t hidden,
                                      std::int64_t vocab,
                                      std::size_t budget_bytes,
                                      bool with_grad) const override {
    return inner_.lm_head_workspace_bytes(dtype, tokens, hidden, vocab, budget_bytes, with_grad);
  }

 private:
  // w with 1 taken off, so that 1 + w is w; in memory of its own until the next call.
  Tensor gain(const Tensor& w, std::vector<double>& memory) const;
  void mean_per_micro_batch(LmHeadLoss p);

  Ops& inner_;
  FaultSettings settings_;
  std::vector<double> gain_memory_[2];
  std::vector<double> lost_gradient_;
};

}  // namespace g2::test
