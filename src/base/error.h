// The errors a user can meet, each with its documented exit code (docs/exit_codes.md).
//
// Every message is one line a user can act on: what, where (file:line:column, JSON path, tensor,
// byte offset), what was found, what was expected, what to do. main() prints it and returns the
// code.
#pragma once

#include <stdexcept>
#include <string>

namespace g2::base {

enum ExitCode : int {
  kOk = 0,
  kUsage = 64,            // command line or config; ranks that disagree
  kData = 65,             // data, model file, non-finite numbers
  kDevice = 70,           // device or internal error, out of memory
  kHardwareSuspect = 71,  // this host or GPU computes wrongly
  kFolder = 73,           // run folder in use, not shared, cannot be created
  kIo = 74,               // input or output failed; a required checkpoint is invalid
  kInterrupted = 75,      // stopped by a signal, state saved: run again with --resume auto
  kComm = 76,             // a peer or the network vanished
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

// Types of their own where two share a code or a catch clause tells them apart.
class NumericError : public Error {  // non-finite loss or gradient
 public:
  explicit NumericError(const std::string& message) : Error(kData, message) {}
};

using UsageError = ErrorOf<kUsage>;
using DataError = ErrorOf<kData>;
using DeviceError = ErrorOf<kDevice>;
using HardwareSuspect = ErrorOf<kHardwareSuspect>;
using FolderError = ErrorOf<kFolder>;
using IoError = ErrorOf<kIo>;
using Interrupted = ErrorOf<kInterrupted>;
using CommError = ErrorOf<kComm>;

}  // namespace g2::base
