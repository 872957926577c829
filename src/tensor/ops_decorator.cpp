#include "tensor/ops_decorator.h"

#include "base/text.h"

namespace g2 {
namespace {

using Slots = std::vector<TensorSlot>;
using enum Role;

constexpr Role added_to(bool accumulate) {
  return accumulate ? kInOut : kOut;
}

// clang-format off
Slots slots_of(EmbeddingForward& p) {
  return {{"ids", kIn, &p.ids}, {"table", kIn, &p.table}, {"y", kOut, &p.y}};
}
Slots slots_of(EmbeddingBackward& p) {
  return {{"groups.ids", kIn, &p.groups.ids}, {"groups.begin", kIn, &p.groups.begin},
          {"groups.rows", kIn, &p.groups.rows}, {"grad_y", kIn, &p.grad_y},
          {"grad_table", kInOut, &p.grad_table}};
}
Slots slots_of(RmsnormForward& p) {
  return {{"x", kIn, &p.x}, {"w", kIn, &p.w}, {"y", kOut, &p.y}, {"r", kOut, &p.r}};
}
Slots slots_of(RmsnormAddForward& p) {
  return {{"branch", kIn, &p.branch}, {"w_post", kIn, &p.w_post}, {"residual", kIn, &p.residual},
          {"w_pre", kIn, &p.w_pre}, {"sum", kOut, &p.sum}, {"y", kOut, &p.y},
          {"r_post", kOut, &p.r_post}, {"r_pre", kOut, &p.r_pre}};
}
Slots slots_of(RmsnormBackward& p) {
  return {{"grad_y", kIn, &p.grad_y}, {"x", kIn, &p.x}, {"w", kIn, &p.w}, {"r", kIn, &p.r},
          {"residual", kIn, &p.residual}, {"grad_x", kOut, &p.grad_x},
          {"grad_w", added_to(p.accumulate_grad_w), &p.grad_w}};
}
Slots slots_of(Rope& p) {
  return {{"x", kInOut, &p.x}, {"positions", kIn, &p.positions}, {"table", kIn, &p.table}};
}
Slots slots_of(AttentionForward& p) {
  return {{"qkv", kIn, &p.qkv}, {"lo", kIn, &p.lo}, {"o", kOut, &p.o}, {"lse", kOut, &p.lse}};
}
Slots slots_of(AttentionBackward& p) {
  return {{"qkv", kIn, &p.qkv}, {"o", kIn, &p.o}, {"lse", kIn, &p.lse}, {"grad_o", kIn, &p.grad_o},
          {"lo", kIn, &p.lo}, {"hi", kIn, &p.hi}, {"grad_qkv", kOut, &p.grad_qkv},
          {"delta", kScratch, &p.delta}};
}
Slots slots_of(GegluForward& p) {
  return {{"gate_up", kIn, &p.gate_up}, {"m", kOut, &p.m}};
}
Slots slots_of(GegluBackward& p) {
  return {{"grad_m", kIn, &p.grad_m}, {"gate_up", kIn, &p.gate_up},
          {"grad_gate_up", kOut, &p.grad_gate_up}};
}
Slots slots_of(LinearForward& p) {
  return {{"x", kIn, &p.x}, {"w", kIn, &p.w}, {"y", kOut, &p.y}};
}
Slots slots_of(LinearDgrad& p) {
  return {{"grad_y", kIn, &p.grad_y}, {"w", kIn, &p.w}, {"grad_x", kOut, &p.grad_x}};
}
Slots slots_of(LinearWgrad& p) {
  return {{"grad_y", kIn, &p.grad_y}, {"x", kIn, &p.x},
          {"grad_w", added_to(p.accumulate), &p.grad_w}};
}
Slots slots_of(LmHeadLoss& p) {
  return {{"x", kIn, &p.x}, {"w", kIn, &p.w}, {"targets", kIn, &p.targets},
          {"rows", kIn, &p.rows}, {"sums", kInOut, &p.sums}, {"loss", kOut, &p.loss}, {"top1", kOut, &p.top1},
          {"grad_x", kOut, &p.grad_x}, {"grad_w", added_to(p.accumulate_grad_w), &p.grad_w},
          {"flags", kInOut, &p.flags}, {"workspace", kScratch, &p.workspace}};
}
Slots slots_of(LmHeadLogits& p) {
  return {{"x", kIn, &p.x}, {"w", kIn, &p.w}, {"logits", kOut, &p.logits}};
}
Slots slots_of(BlockSumsOfSquares& p) {
  return {{"x", kIn, &p.x}, {"block_sums", kOut, &p.block_sums}};
}
Slots slots_of(ClipFactor& p) {
  return {{"block_sums", kIn, &p.block_sums}, {"norm", kOut, &p.norm}, {"factor", kOut, &p.factor}};
}
Slots slots_of(Adamw& p) {
  return {{"master", kInOut, &p.master}, {"m", kInOut, &p.m}, {"v", kInOut, &p.v},
          {"grad", kIn, &p.grad}, {"copy", kOut, &p.copy}, {"factor", kIn, &p.factor}};
}
Slots slots_of(Cast& p) {
  return {{"x", kIn, &p.x}, {"y", kOut, &p.y}};
}
Slots slots_of(FillNormal& p) {
  return {{"y", kOut, &p.y}};
}
// clang-format on

// Calls body(T{}) with T the tensor's element type.
template <typename Body>
void for_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF64:
      return body(double{});
    case DType::kF32:
      return body(float{});
    case DType::kBF16:
      return body(bf16{});
    case DType::kI32:
      return body(std::int32_t{});
  }
}

}  // namespace

std::string OpCall::describe() const {
  std::string text;
  for (const TensorSlot& slot : tensors) {
    text += base::cat(text.empty() ? "" : ", ", slot.name, " ", slot.tensor->describe());
  }
  return text;
}

template <typename Parameters>
void OpsDecorator::decorate(std::string_view op,
                            void (Ops::*method)(const Parameters&),
                            Parameters p) {
  OpCall call{++calls_, op, slots_of(p), [&p, method](Ops& ops) { (ops.*method)(p); }};
  std::erase_if(call.tensors, [](const TensorSlot& slot) { return !*slot.tensor; });
  around(call);
}

void OpsDecorator::embedding_forward(const EmbeddingForward& p) {
  decorate("embedding_forward", &Ops::embedding_forward, p);
}
void OpsDecorator::embedding_backward(const EmbeddingBackward& p) {
  decorate("embedding_backward", &Ops::embedding_backward, p);
}
void OpsDecorator::rmsnorm_forward(const RmsnormForward& p) {
  decorate("rmsnorm_forward", &Ops::rmsnorm_forward, p);
}
void OpsDecorator::rmsnorm_add_forward(const RmsnormAddForward& p) {
  decorate("rmsnorm_add_forward", &Ops::rmsnorm_add_forward, p);
}
void OpsDecorator::rmsnorm_backward(const RmsnormBackward& p) {
  decorate("rmsnorm_backward", &Ops::rmsnorm_backward, p);
}
void OpsDecorator::rope(const Rope& p) {
  decorate("rope", &Ops::rope, p);
}
void OpsDecorator::attention_forward(const AttentionForward& p) {
  decorate("attention_forward", &Ops::attention_forward, p);
}
void OpsDecorator::attention_backward(const AttentionBackward& p) {
  decorate("attention_backward", &Ops::attention_backward, p);
}
void OpsDecorator::geglu_forward(const GegluForward& p) {
  decorate("geglu_forward", &Ops::geglu_forward, p);
}
void OpsDecorator::geglu_backward(const GegluBackward& p) {
  decorate("geglu_backward", &Ops::geglu_backward, p);
}
void OpsDecorator::linear_forward(const LinearForward& p) {
  decorate("linear_forward", &Ops::linear_forward, p);
}
void OpsDecorator::linear_dgrad(const LinearDgrad& p) {
  decorate("linear_dgrad", &Ops::linear_dgrad, p);
}
void OpsDecorator::linear_wgrad(const LinearWgrad& p) {
  decorate("linear_wgrad", &Ops::linear_wgrad, p);
}
void OpsDecorator::lm_head_loss(const LmHeadLoss& p) {
  decorate("lm_head_loss", &Ops::lm_head_loss, p);
}
void OpsDecorator::lm_head_logits(const LmHeadLogits& p) {
  decorate("lm_head_logits", &Ops::lm_head_logits, p);
}
void OpsDecorator::block_sums_of_squares(const BlockSumsOfSquares& p) {
  decorate("block_sums_of_squares", &Ops::block_sums_of_squares, p);
}
void OpsDecorator::clip_factor(const ClipFactor& p) {
  decorate("clip_factor", &Ops::clip_factor, p);
}
void OpsDecorator::adamw(const Adamw& p) {
  decorate("adamw", &Ops::adamw, p);
}
void OpsDecorator::cast(const Cast& p) {
  decorate("cast", &Ops::cast, p);
}
void OpsDecorator::fill_normal(const FillNormal& p) {
  decorate("fill_normal", &Ops::fill_normal, p);
}

std::size_t OpsDecorator::lm_head_workspace_bytes(DType dtype,
                                                  std::int64_t tokens,
                                                  std::int64_t hidden,
                                                  std::int64_t vocab,
                                                  std::size_t budget_bytes,
                                                  bool with_grad) const {
  return inner_->lm_head_workspace_bytes(dtype, tokens, hidden, vocab, budget_bytes, with_grad);
}

std::vector<double> read_values(Device& device, const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.size()));
  if (values.empty()) return values;  // an empty vector's pointer is no place to copy to
  for_element(tensor.dtype, [&](auto zero) {
    std::vector<decltype(zero)> host(values.size());
    device.copy_to_host(host.data(), tensor.data, tensor.bytes());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(host[i]);
  });
  return values;
}

void write_values(Device& device, const Tensor& tensor, const std::vector<double>& values) {
  if (values.empty()) return;
  for_element(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> host(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) host[i] = T(values[i]);
    device.copy_from_host(tensor.data, host.data(), tensor.bytes());
  });
}

}  // namespace g2
