// Whole-file reads, durable writes and read-only memory maps. Errors are IoError naming the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace g2::base {

std::string read_file(const std::filesystem::path& path);

// Replaces `path` as a whole: written to "<path>.tmp-<pid>", synced, renamed, folder synced.
// A reader sees the old content or the new, never a part.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

// A new folder for what goes away with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A file mapped read-only. An empty file gives an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Takes whole pages of `part`, a range of bytes(), out of this process's memory. They may be read
  // again, from the file.
  static void release(std::span<const std::byte> part);

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace g2::base
