// The options that watch every op of a run: --trace-ops, --debug-nan, --verify-ops.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "cli/setup.h"
#include "tensor/ops_debug.h"

namespace g2::cli {

struct DebugOptions {
  std::string trace_file;
  bool stop_at_nan = false;
  bool verify = false;

  void add_to(Options& options);
};

// Puts the decorators asked for around a backend's ops, for as long as the backend lives.
class DebugOps {
 public:
  DebugOps(const DebugOptions& options, Backend& backend);
  // Prints the table of --verify-ops, also when the run ended in an error.
  ~DebugOps();
  DebugOps(const DebugOps&) = delete;
  DebugOps& operator=(const DebugOps&) = delete;

  // Throws DeviceError naming the first call that --verify-ops found wrong.
  void check() const;

 private:
  Backend reference_;  // of --verify-ops
  const VerifyOps* verify_ = nullptr;
};

}  // namespace g2::cli
