#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace g2::base {
namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, mode_t mode = 0644)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) fail("cannot open");
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  [[noreturn]] void fail(const char* what) const {
    throw IoError(cat(path_.string(), ": ", what, ": ", std::strerror(errno)));
  }
  void sync() const {
    if (::fsync(fd_) != 0) fail("cannot sync");
  }
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot close");
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

std::size_t file_size(const Descriptor& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) file.fail("cannot stat");
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    file.fail("cannot read");
  }
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  std::string content;
  content.reserve(file_size(file));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.fail("cannot read");
    if (got == 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
  }
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = path.string() + cat(".tmp-", ::getpid());
  try {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    while (!content.empty()) {
      const ssize_t put = ::write(file.get(), content.data(), content.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) file.fail("cannot write");
      content.remove_prefix(static_cast<std::size_t>(put));
    }
    file.sync();
    file.close();
    std::filesystem::rename(temporary, path);
  } catch (const std::filesystem::filesystem_error& e) {
    ::unlink(temporary.c_str());
    throw IoError(cat(path.string(), ": cannot replace: ", e.code().message()));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const std::filesystem::path parent = path.parent_path();
  Descriptor(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY).sync();
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "gemma2_train_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw IoError(cat(name, ": cannot create: ", std::strerror(errno)));
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  size_ = file_size(file);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) file.fail("cannot map");
  data_ = static_cast<const std::byte*>(mapped);
}

void MappedFile::release(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  // Advice: when it is not taken, only more memory is resident.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace g2::base
