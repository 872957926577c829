#include "base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace g2::base {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw IoError(cat(path.string(), ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

FileSystem::Handle RealFileSystem::create(const Path& path) {
  const Handle file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) fail(path, "cannot create");
  open_[file] = path;
  return file;
}

void RealFileSystem::reserve(Handle file, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (::fallocate(file, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    fail(open_[file], "cannot reserve space");
}

void RealFileSystem::write(Handle file, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(open_[file], "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void RealFileSystem::sync(Handle file) {
  if (::fsync(file) != 0) fail(open_[file], "cannot sync");
}

void RealFileSystem::close(Handle file) {
  const Path path = open_[file];
  open_.erase(file);
  if (::close(file) != 0) fail(path, "cannot close");
}

void RealFileSystem::create_folder(const Path& path) {
  if (::mkdir(path.c_str(), 0755) != 0) fail(path, "cannot create folder");
}

void RealFileSystem::sync_folder(const Path& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail(path, "cannot open folder");
  const int result = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  errno = reason;
  if (result != 0) fail(path, "cannot sync folder");
}

void RealFileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail(from, cat("cannot rename to ", to.string()).c_str());
  }
}

void RealFileSystem::remove_file(const Path& path) {
  if (::unlink(path.c_str()) != 0) fail(path, "cannot remove");
}

void RealFileSystem::remove_folder(const Path& path) {
  if (::rmdir(path.c_str()) != 0) fail(path, "cannot remove folder");
}

std::uint64_t RealFileSystem::free_bytes(const Path& folder) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) throw IoError(cat(folder.string(), ": cannot ask for free space: ", error.message()));
  return space.available;
}

OutputFile::OutputFile(FileSystem& files,
                       const std::filesystem::path& path,
                       std::uint64_t expected_bytes)
    : files_(files), handle_(files.create(path)) {
  try {
    files_.reserve(handle_, expected_bytes);
  } catch (...) {
    close_quietly();
    throw;
  }
}

OutputFile::~OutputFile() {
  if (open_) close_quietly();
}

void OutputFile::finish() {
  files_.sync(handle_);
  open_ = false;
  files_.close(handle_);
}

void OutputFile::close_quietly() noexcept {
  open_ = false;
  try {
    files_.close(handle_);
  } catch (const std::exception&) {  // an earlier failure is already on its way up
  }
}

void write_new_file(FileSystem& files,
                    const std::filesystem::path& path,
                    std::string_view content) {
  OutputFile file(files, path, content.size());
  file.write(std::as_bytes(std::span(content)));
  file.finish();
}

std::string unique_suffix() {
  std::random_device device;
  return hex64(std::uint64_t{device()} << 32 | device());
}

void remove_tree(FileSystem& files, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) throw IoError(cat(folder.string(), ": cannot list: ", error.message()));
  for (const auto& entry : entries) {
    if (entry.symlink_status().type() == std::filesystem::file_type::directory) {
      remove_tree(files, entry.path());
    } else {
      files.remove_file(entry.path());
    }
  }
  files.remove_folder(folder);
}

}  // namespace g2::base
