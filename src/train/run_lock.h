// One writer a run folder: an flock on <run>/lock, and <run>/owner.json to say who holds it.
#pragma once

#include <filesystem>
#include <string>

namespace g2::train {

class RunLock {
 public:
  // Makes the run folder where it is missing. Throws FolderError naming host, process and start of
  // the holder when there is one, or when the folder cannot be made or written.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();  // gives the folder back
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::filesystem::path& run_folder() const { return folder_; }

  // Throws FolderError when owner.json names another process: the fence on file systems where
  // flock does not reach over machines. Called before a checkpoint is published.
  void check_still_owner() const;

 private:
  std::filesystem::path folder_;
  std::string nonce_;
  int file_ = -1;
};

}  // namespace g2::train
