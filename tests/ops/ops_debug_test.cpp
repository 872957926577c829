// Must catch: a decorator that changes results; a tensor left out of an op's table or given the
// wrong role (so that its error, NaN or change goes unseen); inputs read after an in-place op has
// overwritten them; bounds so wide that nothing fails, or so narrow that rounding does.
#include "tensor/ops_debug.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "tests/model/tiny_model.h"
#include "train/optimizer.h"

namespace g2 {
namespace {

using nlohmann::json;

// After each call of `op`, runs `damage` on the values of its output `tensor`.
class DamagedOps final : public OpsDecorator {
 public:
  using Damage = std::function<void(std::vector<double>&)>;
  DamagedOps(
      std::unique_ptr<Ops> inner, Device& device, std::string op, std::string tensor, Damage damage)
      : OpsDecorator(std::move(inner), device),
        op_(std::move(op)),
        tensor_(std::move(tensor)),
        damage_(std::move(damage)) {}

 private:
  void around(const OpCall& call) override {
    call.run(inner());
    for (const TensorSlot& slot : call.tensors) {
      if (call.op != op_ || slot.name != tensor_) continue;
      std::vector<double> values = read_values(device(), *slot.tensor);
      damage_(values);
      write_values(device(), *slot.tensor, values);
    }
  }

  std::string op_, tensor_;
  Damage damage_;
};

// Notes every written float tensor it sees, as (op, tensor).
class NotingOps final : public OpsDecorator {
 public:
  using Seen = std::set<std::pair<std::string, std::string>>;
  NotingOps(std::unique_ptr<Ops> inner, Device& device, Seen& seen)
      : OpsDecorator(std::move(inner), device), seen_(seen) {}

 private:
  void around(const OpCall& call) override {
    call.run(inner());
    for (const TensorSlot& slot : call.tensors) {
      if (is_written(slot.role) && slot.tensor->dtype != DType::kI32) {
        seen_.emplace(call.op, slot.name);
      }
    }
  }
  Seen& seen_;
};

std::unique_ptr<Ops> cpu_ops(cpu::CpuDevice& device) {
  return std::make_unique<cpu::CpuOps>(device.pool());
}

// Initialisation, two micro-batches with recomputation, an update and the logits: every op.
std::vector<double> train_once(Ops& ops, cpu::CpuDevice& device, DType dtype) {
  const test::OwnedBatch batch = test::random_batch(2, 16, true, 3);
  model::ModelOptions options = test::tiny_options(dtype, batch);
  options.recompute = model::Recompute::kNorms;
  model::Model model(test::tiny_config(), device, ops, options);
  model.initialise(7);
  for (const bool first : {true, false}) model.forward_backward(batch.view(), 0.02, first);
  train::Optimizer optimizer(model, config::OptimizerSettings{});
  optimizer.gradient_norm();
  optimizer.update(1e-3, 1);
  const Buffer losses(device, 32 * 8), logits(device, 32 * 97 * 8);
  model.forward_loss(batch.view(), Tensor(losses.data(), work_dtype(dtype), {32}));
  model.forward_logits(batch.view(), Tensor(logits.data(), work_dtype(dtype), {32, 97}));
  std::vector<double> result = read_values(device, model.master());
  const std::vector<double> grads = read_values(device, model.grads());
  result.insert(result.end(), grads.begin(), grads.end());
  return result;
}

std::vector<json> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string text; std::getline(file, text);) lines.push_back(json::parse(text));
  return lines;
}

void cast_values(Ops& ops, std::vector<float> from, std::vector<float>& to) {
  const auto n = static_cast<std::int64_t>(from.size());
  ops.cast({.x = Tensor(from.data(), DType::kF32, {n}), .y = Tensor(to.data(), DType::kF32, {n})});
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const base::Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(OpsDebug, ChangesNoBitWhenStacked) {
  const test::TempFolder folder;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    cpu::CpuDevice device(1), reference_device(1);
    cpu::CpuOps plain(device.pool()), reference(reference_device.pool());
    std::unique_ptr<Ops> ops = cpu_ops(device);
    ops = std::make_unique<VerifyOps>(std::move(ops), device, reference, reference_device);
    ops = std::make_unique<TraceOps>(std::move(ops), device, folder / "trace.jsonl");
    ops = std::make_unique<NanOps>(std::move(ops), device);
    EXPECT_EQ(train_once(*ops, device, dtype), train_once(plain, device, dtype));
  }
}

TEST(TraceOps, WritesChecksumsOfWhatWasReadAndWritten) {
  const test::TempFolder folder;
  cpu::CpuDevice device(1);
  std::vector<float> to(3);
  float row[4] = {3, 4, 0, 0};  // one head of 4, rotated by a quarter turn in place
  float table[4] = {0, 0, 1, 1};
  std::int32_t position = 0;
  {
    TraceOps ops(cpu_ops(device), device, folder / "trace.jsonl");
    cast_values(ops, {1, 2, -3}, to);
    ops.rope({.x = Tensor(row, DType::kF32, {1, 4}),
              .positions = Tensor(&position, DType::kI32, {1}),
              .table = Tensor(table, DType::kF32, {1, 4}),
              .heads = 1,
              .inverse = false});
    cast_values(ops, {NAN, INFINITY, 0}, to);
  }
  const std::vector<json> lines = read_lines(folder / "trace.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["call"], 1);
  EXPECT_EQ(lines[0]["op"], "cast");
  const json& y = lines[0]["tensors"]["y"];
  EXPECT_EQ(y["role"], "out");
  EXPECT_EQ(y["dtype"], "f32");
  EXPECT_EQ(y["shape"], json({3}));
  EXPECT_EQ(y["sum"], 0);
  EXPECT_EQ(y["first"], 1);
  EXPECT_DOUBLE_EQ(y["l2"].get<double>(), std::sqrt(14.0));
  EXPECT_GE(lines[0]["ms"].get<double>(), 0);
  EXPECT_EQ(lines[1]["tensors"]["x"]["role"], "inout");
  EXPECT_EQ(lines[1]["tensors"]["x"]["first"], 0);  // after the call
  EXPECT_EQ(lines[1]["tensors"]["positions"]["dtype"], "i32");
  EXPECT_EQ(lines[2]["tensors"]["y"]["sum"], "nan");
  EXPECT_EQ(lines[2]["tensors"]["x"]["first"], "nan");
}

TEST(TraceOps, ReadsInputsBeforeAnInPlaceOpOverwritesThem) {
  const test::TempFolder folder;
  cpu::CpuDevice device(1);
  float gate_up[2] = {1, 5};
  float grad = 2;
  {
    TraceOps ops(cpu_ops(device), device, folder / "trace.jsonl");
    const Tensor both(gate_up, DType::kF32, {1, 2});
    ops.geglu_backward(
        {.grad_m = Tensor(&grad, DType::kF32, {1, 1}), .gate_up = both, .grad_gate_up = both});
  }
  const json tensors = read_lines(folder / "trace.jsonl").at(0)["tensors"];
  EXPECT_EQ(tensors["gate_up"]["sum"], 6);
  EXPECT_NE(tensors["grad_gate_up"]["sum"], 6);
}

TEST(TraceOps, SaysWhenTheFileCannotBeWritten) {
  cpu::CpuDevice device(1);
  EXPECT_THROW(TraceOps(cpu_ops(device), device, "/nowhere/trace.jsonl"), base::IoError);
}

TEST(OpsDebug, TakesEmptyTensors) {
  const test::TempFolder folder;
  cpu::CpuDevice device(1), reference_device(1);
  cpu::CpuOps reference(reference_device.pool());
  std::unique_ptr<Ops> ops = cpu_ops(device);
  ops = std::make_unique<VerifyOps>(std::move(ops), device, reference, reference_device);
  ops = std::make_unique<TraceOps>(std::move(ops), device, folder / "trace.jsonl");
  float none = 0;
  const Tensor empty(&none, DType::kF32, {0});
  ops->cast({.x = empty, .y = empty});
  const json y = read_lines(folder / "trace.jsonl").at(0)["tensors"]["y"];
  EXPECT_EQ(y["shape"], json({0}));
  EXPECT_FALSE(y.contains("first"));
}

TEST(NanOps, NamesCallOpTensorIndexAndShapes) {
  cpu::CpuDevice device(1);
  std::vector<float> to(3);
  NanOps ops(cpu_ops(device), device);
  cast_values(ops, {1, 2, 3}, to);
  const std::string message = message_of([&] { cast_values(ops, {1, 2, -INFINITY}, to); });
  EXPECT_EQ(message,
            "call 2, cast: y[2] is -inf, the first non-finite result of the run (x [3] f32, y [3] "
            "f32)");
  EXPECT_THROW(cast_values(ops, {NAN, 2, 3}, to), base::NumericError);
}

TEST(NanOps, WatchesEveryTensorThatIsWritten) {
  cpu::CpuDevice device(1);
  NotingOps::Seen seen;
  NotingOps noting(cpu_ops(device), device, seen);
  train_once(noting, device, DType::kBF16);
  for (const auto& [op, tensor] : seen) {
    NanOps ops(
        std::make_unique<DamagedOps>(
            cpu_ops(device), device, op, tensor, [](std::vector<double>& v) { v.back() = NAN; }),
        device);
    const std::string message = message_of([&] { train_once(ops, device, DType::kBF16); });
    EXPECT_NE(message.find(op + ": " + tensor + "["), std::string::npos) << message;
  }
}

TEST(VerifyOps, PassesEveryOpInEveryType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    cpu::CpuDevice device(1), reference_device(1);
    cpu::CpuOps reference(reference_device.pool());
    VerifyOps ops(cpu_ops(device), device, reference, reference_device);
    train_once(ops, device, dtype);
    EXPECT_NO_THROW(ops.check());
    // cast is used in bf16 only; all the others always.
    EXPECT_EQ(ops.verdicts().size(), dtype == DType::kBF16 ? 20U : 19U) << ops.table();
    if (dtype != DType::kF64) {
      EXPECT_GT(ops.verdicts().at("attention_backward").error, 0);
    }
    std::printf("%s\n%s", std::string(dtype_name(dtype)).c_str(), ops.table().c_str());
  }
}

TEST(VerifyOps, FindsAnErrorInEveryTensorThatIsWritten) {
  for (const auto& [dtype, error] : {std::pair(DType::kF32, 3e-5), {DType::kBF16, 4e-2}}) {
    cpu::CpuDevice device(1), reference_device(1);
    cpu::CpuOps reference(reference_device.pool());
    NotingOps::Seen seen;
    NotingOps noting(cpu_ops(device), device, seen);
    train_once(noting, device, dtype);
    EXPECT_GE(seen.size(), 30U);
    for (const auto& [op, tensor] : seen) {
      const double scale = 1 + error;
      VerifyOps ops(std::make_unique<DamagedOps>(cpu_ops(device),
                                                 device,
                                                 op,
                                                 tensor,
                                                 [scale](std::vector<double>& values) {
                                                   for (double& value : values) value *= scale;
                                                 }),
                    device,
                    reference,
                    reference_device);
      train_once(ops, device, dtype);
      const std::string message = message_of([&] { ops.check(); });
      EXPECT_NE(message.find(op + ": " + tensor + " differs"), std::string::npos)
          << dtype_name(dtype) << ' ' << op << ' ' << tensor << ": " << message;
      EXPECT_NE(ops.table().find("FAILED"), std::string::npos);
      for (const auto& [name, verdict] : ops.verdicts()) {
        EXPECT_EQ(verdict.failed > 0, name == op) << name;  // errors do not carry over
      }
    }
  }
}

TEST(VerifyOps, NotANumberFails) {
  cpu::CpuDevice device(1), reference_device(1);
  cpu::CpuOps reference(reference_device.pool());
  VerifyOps ops(
      std::make_unique<DamagedOps>(
          cpu_ops(device), device, "cast", "y", [](std::vector<double>& v) { v[0] = NAN; }),
      device,
      reference,
      reference_device);
  std::vector<float> to(2);
  cast_values(ops, {1, 2}, to);
  EXPECT_THROW(ops.check(), base::DeviceError);
}

}  // namespace
}  // namespace g2
