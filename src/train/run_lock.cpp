#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/text.h"

namespace g2::train {
namespace {

using base::cat;
using nlohmann::json;

struct Owner {
  std::string host = "?";
  std::int64_t pid = 0;
  std::string started = "?";
  std::string nonce;

  std::string describe() const { return cat("process ", pid, " on ", host, ", started ", started); }
};

// What owner.json says; the defaults when it is missing or damaged.
Owner read_owner(const std::filesystem::path& folder) {
  try {
    const json root = json::parse(base::read_file(folder / "owner.json"));
    return {root.at("host").get<std::string>(),
            root.at("pid").get<std::int64_t>(),
            root.at("started").get<std::string>(),
            root.at("nonce").get<std::string>()};
  } catch (const std::exception&) {
    return {};
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_folder)
    : folder_(run_folder), nonce_(base::unique_suffix()) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw base::FolderError(
        cat(folder_.string(), ": cannot create the run folder: ", error.message()));
  }
  const std::filesystem::path path = folder_ / "lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw base::FolderError(cat(path.string(), ": cannot open: ", std::strerror(errno)));
  }
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    if (reason == EWOULDBLOCK) {
      ::close(file_);
      throw base::FolderError(cat(folder_.string(),
                                  ": the run folder is in use by ",
                                  read_owner(folder_).describe(),
                                  "; stop it, or set another run.dir"));
    }
    base::log_warning(cat(path.string(),
                          ": cannot lock (",
                          std::strerror(reason),
                          "); make sure that no other run uses this folder"));
  }
  const json owner = {{"host", host_name()},
                      {"pid", ::getpid()},
                      {"started", base::utc_time_text()},
                      {"nonce", nonce_}};
  try {
    base::write_file_atomic(folder_ / "owner.json", owner.dump(2) + "\n");
  } catch (const base::IoError& e) {
    ::close(file_);
    throw base::FolderError(e.what());
  }
}

RunLock::~RunLock() {
  if (read_owner(folder_).nonce == nonce_) ::unlink((folder_ / "owner.json").c_str());
  ::close(file_);
}

void RunLock::check_still_owner() const {
  const Owner owner = read_owner(folder_);
  if (owner.nonce == nonce_) return;
  throw base::FolderError(cat(folder_.string(),
                              ": the run folder was taken over by ",
                              owner.describe(),
                              "; nothing more is written here"));
}

}  // namespace g2::train
