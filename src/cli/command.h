// What main() knows of a subcommand: one row in its table, one file with the function.
#pragma once

#include <span>
#include <string_view>

namespace g2::cli {

// The command line behind the subcommand's name.
using Args = std::span<char* const>;

// Returns the exit code; errors are thrown (base/error.h) and become one line in main().
using Run = int (*)(Args);

struct Command {
  std::string_view name;
  const char* help;  // one line
  Run run;
};

int config(Args args);
int eval(Args args);
int export_model(Args args);
int generate(Args args);
int inspect(Args args);
int plan(Args args);
int tokenize(Args args);
int train(Args args);
int verify(Args args);
int version(Args args);

}  // namespace g2::cli
