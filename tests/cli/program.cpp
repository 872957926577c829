#include "tests/cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/file.h"

namespace g2::test {
namespace {

void redirect(int descriptor, const char* path, int flags) {
  const int file = ::open(path, flags, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) std::abort();
  ::close(file);
}

}  // namespace

Program::Program(const std::vector<std::string>& args, const std::string& out_path)
    : out_(out_path.empty() ? (folder_ / "out").string() : out_path),
      err_(folder_ / "err"),
      keeps_out_(out_path.empty()) {
  std::vector<char*> argv = {const_cast<char*>(G2_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  child_ = ::fork();
  if (child_ < 0) std::abort();
  if (child_ > 0) return;
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, out_.c_str(), O_WRONLY | O_CREAT);
  redirect(STDERR_FILENO, err_.c_str(), O_WRONLY | O_CREAT);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

Program::~Program() {
  if (has_ended()) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void Program::signal(int number) const {
  ::kill(child_, number);
}

bool Program::has_ended() {
  if (!ended_) ended_ = ::waitpid(child_, &status_, WNOHANG) != 0;
  return ended_;
}

void Program::wait_for_lines(const std::filesystem::path& path, int lines) {
  const auto there = [&] {
    if (!std::filesystem::exists(path)) return false;
    const std::string text = base::read_file(path);
    return std::count(text.begin(), text.end(), '\n') >= lines;
  };
  while (!there() && !has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

ProgramRun Program::wait() {
  if (!ended_ && ::waitpid(child_, &status_, 0) != child_) std::abort();
  ended_ = true;
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {code, keeps_out_ ? base::read_file(out_) : "", base::read_file(err_)};
}

}  // namespace g2::test
