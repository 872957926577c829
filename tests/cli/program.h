// Runs the real gemma2_train as a user does.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/support.h"

namespace g2::test {

struct ProgramRun {
  int exit_code;  // 128 + the signal when one ended it
  std::string out;
  std::string err;
};

// A gemma2_train that is running, in this process's working directory; standard input is empty.
// With `out_path` standard output goes there, and `out` stays empty.
class Program {
 public:
  explicit Program(const std::vector<std::string>& args, const std::string& out_path = "");
  ~Program();  // ends it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  // Until the file has this many lines, or the program has ended.
  void wait_for_lines(const std::filesystem::path& path, int lines);
  ProgramRun wait();  // once

 private:
  bool has_ended();

  TempFolder folder_;
  std::string out_, err_;
  bool keeps_out_;
  pid_t child_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

inline ProgramRun run_program(const std::vector<std::string>& args,
                              const std::string& out_path = "") {
  return Program(args, out_path).wait();
}

}  // namespace g2::test
