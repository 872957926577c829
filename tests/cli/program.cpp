#include "tests/cli/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/support/support.h"

namespace g2::test {
namespace {

void redirect(int descriptor, const char* path, int flags) {
  const int file = ::open(path, flags, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) std::abort();
  ::close(file);
}

}  // namespace

ProgramRun run_program(const std::vector<std::string>& args, const std::string& out_path) {
  const TempFolder folder;
  const std::string out = out_path.empty() ? (folder / "out").string() : out_path;
  const std::string err = folder / "err";
  std::vector<char*> argv = {const_cast<char*>(G2_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
    redirect(STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT);
    redirect(STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) std::abort();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, out_path.empty() ? base::read_file(out) : "", base::read_file(err)};
}

}  // namespace g2::test
