// What may be on disk after the power fails: every change that no sync forced may be missing.
//
// RecordingFileSystem notes operations while they run for real. PowerLoss plays the first n of them
// in memory and builds one possible disk: changes forced by a sync are there, each other one is
// there or not by chance, in order. A rename is one change; of unsynced writes a prefix survives.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "tests/support/support.h"

namespace g2::train {

struct Operation {
  enum Kind { kCreate, kWrite, kSync, kMakeFolder, kSyncFolder, kRename, kRemove } kind;
  std::filesystem::path path = {};
  std::filesystem::path to = {};
  std::string bytes = {};
};

class RecordingFileSystem final : public base::FileSystem {
 public:
  std::vector<Operation> log;

  Handle create(const Path& path) override {
    log.push_back({.kind = Operation::kCreate, .path = path});
    const Handle file = real_.create(path);
    open_[file] = path;
    return file;
  }
  void reserve(Handle file, std::uint64_t bytes) override { real_.reserve(file, bytes); }
  void write(Handle file, base::Bytes bytes) override {
    log.push_back({.kind = Operation::kWrite,
                   .path = open_[file],
                   .bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    real_.write(file, bytes);
  }
  void sync(Handle file) override {
    log.push_back({.kind = Operation::kSync, .path = open_[file]});
    real_.sync(file);
  }
  void close(Handle file) override { real_.close(file); }
  void create_folder(const Path& path) override {
    log.push_back({.kind = Operation::kMakeFolder, .path = path});
    real_.create_folder(path);
  }
  void sync_folder(const Path& path) override {
    log.push_back({.kind = Operation::kSyncFolder, .path = path});
    real_.sync_folder(path);
  }
  void rename(const Path& from, const Path& to) override {
    log.push_back({.kind = Operation::kRename, .path = from, .to = to});
    real_.rename(from, to);
  }
  void remove_file(const Path& path) override {
    log.push_back({.kind = Operation::kRemove, .path = path});
    real_.remove_file(path);
  }
  void remove_folder(const Path& path) override {
    log.push_back({.kind = Operation::kRemove, .path = path});
    real_.remove_folder(path);
  }
  std::uint64_t free_bytes(const Path& folder) override { return real_.free_bytes(folder); }

 private:
  base::RealFileSystem real_;
  std::map<Handle, Path> open_;
};

class PowerLoss {
 public:
  // `root` is the recorded folder; survival is the chance of a change that no sync forced.
  PowerLoss(std::filesystem::path root, double survival, std::mt19937_64& rng)
      : root_(std::move(root)), survives_(survival), rng_(rng) {}

  // Builds the disk after log[0 .. count) below `target`, an empty folder.
  void build(const std::vector<Operation>& log,
             std::size_t count,
             const std::filesystem::path& target) {
    for (std::size_t i = 0; i < count; ++i) {
      if (is_forced(log, i, count) || survives_(rng_)) apply(log[i], target);
    }
  }

 private:
  // A sync after log[i] and before the end covers it: of the file for writes, else of the folder
  // whose entries it changes. A renamed folder keeps its own entries' state.
  bool is_forced(const std::vector<Operation>& log, std::size_t i, std::size_t count) const {
    std::filesystem::path subject = log[i].kind == Operation::kWrite    ? log[i].path
                                    : log[i].kind == Operation::kRename ? log[i].to.parent_path()
                                                                        : log[i].path.parent_path();
    const auto wanted =
        log[i].kind == Operation::kWrite ? Operation::kSync : Operation::kSyncFolder;
    for (std::size_t j = i + 1; j < count; ++j) {
      if (log[j].kind == wanted && log[j].path == subject) return true;
      if (log[j].kind == Operation::kRename) subject = moved(subject, log[j]);
    }
    return false;
  }
  static std::filesystem::path moved(const std::filesystem::path& path, const Operation& rename) {
    const std::filesystem::path below = path.lexically_relative(rename.path);
    if (below.empty() || *below.begin() == "..") return path;
    return (rename.to / below).lexically_normal();
  }

  void apply(const Operation& operation, const std::filesystem::path& target) const {
    const std::filesystem::path path = target / operation.path.lexically_relative(root_);
    std::error_code impossible;  // what it stood on did not survive
    switch (operation.kind) {
      case Operation::kCreate:
        if (std::filesystem::exists(path.parent_path())) test::write_text(path, "");
        break;
      case Operation::kWrite:
        if (std::filesystem::exists(path)) {
          std::ofstream(path, std::ios::binary | std::ios::app) << operation.bytes;
        }
        break;
      case Operation::kMakeFolder:
        std::filesystem::create_directory(path, impossible);
        break;
      case Operation::kRename:
        std::filesystem::rename(path, target / operation.to.lexically_relative(root_), impossible);
        break;
      case Operation::kRemove:
        std::filesystem::remove(path, impossible);
        break;
      case Operation::kSync:
      case Operation::kSyncFolder:
        break;
    }
  }

  std::filesystem::path root_;
  std::bernoulli_distribution survives_;
  std::mt19937_64& rng_;
};

}  // namespace g2::train
