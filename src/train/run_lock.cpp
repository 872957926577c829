#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
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

// What owner.json says, or null when it is missing or damaged.
json read_owner(const std::filesystem::path& folder) {
  try {
    return json::parse(base::read_file(folder / "owner.json"));
  } catch (const base::IoError&) {
    return nullptr;
  } catch (const json::exception&) {
    return nullptr;
  }
}

std::string holder_text(const json& owner) {
  if (!owner.is_object()) return "another process";
  return cat("process ",
             owner.value("pid", 0),
             " on ",
             owner.value("host", "?"),
             ", started ",
             owner.value("started", "?"));
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
                                  holder_text(read_owner(folder_)),
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
  const json owner = read_owner(folder_);
  if (owner.is_object() && owner.value("nonce", "") == nonce_) {
    ::unlink((folder_ / "owner.json").c_str());
  }
  ::close(file_);
}

void RunLock::check_still_owner() const {
  const json owner = read_owner(folder_);
  if (owner.is_object() && owner.value("nonce", "") == nonce_) return;
  throw base::FolderError(cat(folder_.string(),
                              ": the run folder was taken over by ",
                              holder_text(owner),
                              "; nothing more is written here"));
}

}  // namespace g2::train
