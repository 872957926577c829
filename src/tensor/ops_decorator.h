// Base of the decorators that watch every call of another Ops: it turns the ops into one generic
// call with named tensors, so that a decorator is one function.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/device.h"
#include "tensor/ops.h"

namespace g2 {

enum class Role : std::uint8_t { kIn, kOut, kInOut, kScratch };

constexpr bool is_read(Role role) {
  return role == Role::kIn || role == Role::kInOut;
}
constexpr bool is_written(Role role) {
  return role == Role::kOut || role == Role::kInOut;
}

// A tensor of a call, named as its member of the parameter struct.
struct TensorSlot {
  std::string_view name;
  Role role;
  Tensor* tensor;  // in OpCall's own copy of the parameters
};

// One call of an op. run(ops) makes it, with the tensors the slots point at: replacing *slot.tensor
// sends a later run() to other memory.
struct OpCall {
  std::int64_t number;  // counts from 1
  std::string_view op;
  std::vector<TensorSlot> tensors;  // without null ones
  std::function<void(Ops&)> run;

  // "x [64, 40] f32, w [40] f32, y [64, 40] f32", for messages.
  std::string describe() const;
};

class OpsDecorator : public Ops {
 public:
  OpsDecorator(std::unique_ptr<Ops> inner, Device& device)
      : inner_(std::move(inner)), device_(device) {}

  void embedding_forward(const EmbeddingForward& p) final;
  void embedding_backward(const EmbeddingBackward& p) final;
  void rmsnorm_forward(const RmsnormForward& p) final;
  void rmsnorm_add_forward(const RmsnormAddForward& p) final;
  void rmsnorm_backward(const RmsnormBackward& p) final;
  void rope(const Rope& p) final;
  void attention_forward(const AttentionForward& p) final;
  void attention_backward(const AttentionBackward& p) final;
  void geglu_forward(const GegluForward& p) final;
  void geglu_backward(const GegluBackward& p) final;
  void linear_forward(const LinearForward& p) final;
  void linear_dgrad(const LinearDgrad& p) final;
  void linear_wgrad(const LinearWgrad& p) final;
  void lm_head_loss(const LmHeadLoss& p) final;
  void lm_head_logits(const LmHeadLogits& p) final;
  void block_sums_of_squares(const BlockSumsOfSquares& p) final;
  void clip_factor(const ClipFactor& p) final;
  void adamw(const Adamw& p) final;
  void cast(const Cast& p) final;
  void fill_normal(const FillNormal& p) final;
  std::size_t lm_head_workspace_bytes(DType dtype,
                                      std::int64_t tokens,
                                      std::int64_t hidden,
                                      std::int64_t vocab,
                                      std::size_t budget_bytes,
                                      bool with_grad) const final;

 protected:
  // Makes the call on inner() once, and whatever the decorator is for.
  virtual void around(const OpCall& call) = 0;

  Ops& inner() { return *inner_; }
  Device& device() { return device_; }

 private:
  template <typename Parameters>
  void decorate(std::string_view op, void (Ops::*method)(const Parameters&), Parameters p);

  std::unique_ptr<Ops> inner_;
  Device& device_;
  std::int64_t calls_ = 0;
};

// The elements of a device tensor as doubles, exactly; and back, rounded to its type.
std::vector<double> read_values(Device& device, const Tensor& tensor);
void write_values(Device& device, const Tensor& tensor, const std::vector<double>& values);

}  // namespace g2
