// Runs the real gemma2_train as a user does.
#pragma once

#include <string>
#include <vector>

namespace g2::test {

struct ProgramRun {
  int exit_code;  // 128 + the signal when one ended it
  std::string out;
  std::string err;
};

// In this process's working directory; standard input is empty. With `out_path` standard output
// goes there, and `out` stays empty.
ProgramRun run_program(const std::vector<std::string>& args, const std::string& out_path = "");

}  // namespace g2::test
