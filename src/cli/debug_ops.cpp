#include "cli/debug_ops.h"

#include <cstdio>

namespace g2::cli {

void DebugOptions::add_to(Options& options) {
  options.add("--trace-ops", trace_file, "write one JSON line a call of an op to this file (slow)");
  options.flag("--debug-nan", stop_at_nan, "stop at the first op that writes inf or NaN (slow)");
  options.flag("--verify-ops",
               verify,
               "make every call also on the CPU in fp64, compare, print a table (very slow)");
}

DebugOps::DebugOps(const DebugOptions& options, Backend& backend) {
  Device& device = *backend.device;
  if (options.verify) {
    config::DeviceSettings cpu;
    cpu.kind = config::DeviceKind::kCpu;
    reference_ = open_backend(cpu, config::Precision::kFp64);
    auto verify = std::make_unique<VerifyOps>(
        std::move(backend.ops), device, *reference_.ops, *reference_.device);
    verify_ = verify.get();
    backend.ops = std::move(verify);
  }
  if (!options.trace_file.empty()) {
    backend.ops = std::make_unique<TraceOps>(std::move(backend.ops), device, options.trace_file);
  }
  if (options.stop_at_nan) {
    backend.ops = std::make_unique<NanOps>(std::move(backend.ops), device);
  }
}

DebugOps::~DebugOps() {
  if (verify_ != nullptr) std::fputs(verify_->table().c_str(), stdout);
}

void DebugOps::check() const {
  if (verify_ != nullptr) verify_->check();
}

}  // namespace g2::cli
