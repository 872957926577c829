// Everything that changes the disk on the way to a checkpoint or an exported folder.
//
// Virtual only so that tests can let any single operation fail, be cut short or be the last before
// the process ends. Reading goes through base/file.h and std::filesystem. Every function throws
// IoError "path: what: reason".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace g2::base {

using Bytes = std::span<const std::byte>;

class FileSystem {
 public:
  using Path = std::filesystem::path;
  using Handle = int;

  virtual ~FileSystem() = default;

  virtual Handle create(const Path& path) = 0;  // for writing; an existing file is an error
  // Sets blocks aside, so that a full disk shows before the first byte. A file system that cannot
  // do this is no error.
  virtual void reserve(Handle file, std::uint64_t bytes) = 0;
  virtual void write(Handle file, Bytes bytes) = 0;  // all of them, at the end
  virtual void sync(Handle file) = 0;
  virtual void close(Handle file) = 0;  // the handle is gone even when this throws

  virtual void create_folder(const Path& path) = 0;  // its parent exists, it does not
  virtual void sync_folder(const Path& path) = 0;
  virtual void rename(const Path& from, const Path& to) = 0;  // replaces a file or an empty folder
  virtual void remove_file(const Path& path) = 0;
  virtual void remove_folder(const Path& path) = 0;  // an empty one

  virtual std::uint64_t free_bytes(const Path& folder) = 0;  // that this user may fill
};

class RealFileSystem final : public FileSystem {
 public:
  Handle create(const Path& path) override;
  void reserve(Handle file, std::uint64_t bytes) override;
  void write(Handle file, Bytes bytes) override;
  void sync(Handle file) override;
  void close(Handle file) override;
  void create_folder(const Path& path) override;
  void sync_folder(const Path& path) override;
  void rename(const Path& from, const Path& to) override;
  void remove_file(const Path& path) override;
  void remove_folder(const Path& path) override;
  std::uint64_t free_bytes(const Path& folder) override;

 private:
  std::map<Handle, Path> open_;  // for messages
};

// A file being written. Destroyed before finish() it is closed unsynced: an unwound stack leaves no
// descriptor behind.
class OutputFile {
 public:
  OutputFile(FileSystem& files,
             const std::filesystem::path& path,
             std::uint64_t expected_bytes = 0);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(Bytes bytes) { files_.write(handle_, bytes); }
  void finish();  // syncs and closes

 private:
  void close_quietly() noexcept;

  FileSystem& files_;
  FileSystem::Handle handle_;
  bool open_ = true;
};

// A whole new file, synced.
void write_new_file(FileSystem& files, const std::filesystem::path& path, std::string_view content);

// 16 random hexadecimal digits: names of temporary files and folders that no other process has.
std::string unique_suffix();

// Removes a folder with everything below it; symbolic links are removed, not followed.
void remove_tree(FileSystem& files, const std::filesystem::path& folder);

}  // namespace g2::base
