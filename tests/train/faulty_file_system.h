// A real file system whose n-th operation goes wrong.
#pragma once

#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "base/file_system.h"

namespace g2::train {

enum class Fault {
  kFail,        // the operation reports an error and has no effect
  kShortWrite,  // a write stops half-way with an error; other operations fail
  kDieBefore,   // the process ends before the operation
  kDieAfter,    // the process ends after it
};

// Thrown by every operation once the process has "ended": nothing reaches the disk any more.
struct Died : std::runtime_error {
  Died() : std::runtime_error("the process has ended") {}
};

class FaultyFileSystem final : public base::FileSystem {
 public:
  Fault fault = Fault::kFail;
  int fail_at = -1;    // number of the operation that goes wrong; -1: none
  int operations = 0;  // so far
  std::uint64_t free = std::numeric_limits<std::uint64_t>::max();

  Handle create(const Path& path) override {
    Handle file = -1;
    perform([&] { file = real_.create(path); });
    return file;
  }
  void reserve(Handle file, std::uint64_t bytes) override {
    perform([&] { real_.reserve(file, bytes); });
  }
  void write(Handle file, base::Bytes bytes) override {
    if (operations == fail_at && fault == Fault::kShortWrite) {
      real_.write(file, bytes.first(bytes.size() / 2));
    }
    perform([&] { real_.write(file, bytes); });
  }
  void sync(Handle file) override {
    perform([&] { real_.sync(file); });
  }
  void close(Handle file) override {
    perform([&] { real_.close(file); });
  }
  void create_folder(const Path& path) override {
    perform([&] { real_.create_folder(path); });
  }
  void sync_folder(const Path& path) override {
    perform([&] { real_.sync_folder(path); });
  }
  void rename(const Path& from, const Path& to) override {
    perform([&] { real_.rename(from, to); });
  }
  void remove_file(const Path& path) override {
    perform([&] { real_.remove_file(path); });
  }
  void remove_folder(const Path& path) override {
    perform([&] { real_.remove_folder(path); });
  }
  std::uint64_t free_bytes(const Path&) override { return free; }

 private:
  template <typename Operation>
  void perform(const Operation& operation) {
    if (dead_) throw Died();
    if (operations++ != fail_at) return operation();
    dead_ = fault == Fault::kDieBefore || fault == Fault::kDieAfter;
    if (fault == Fault::kDieAfter) operation();
    if (dead_) throw Died();
    throw base::IoError("injected fault");
  }

  base::RealFileSystem real_;
  bool dead_ = false;
};

}  // namespace g2::train
