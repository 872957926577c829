// Command-line options of a subcommand. Hides CLI11, whose header takes long to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace g2::cli {

enum class Need { kOptional, kRequired };

// Declare the options, then parse(). A name is "--steps", "-o,--out", or, for an argument without
// dashes, "input". The variables must outlive parse(), and keep their value, the default, where the
// option is not given.
//
//   std::string out;
//   Options options("export", "Writes a Hugging Face folder.");
//   options.add("--out", out, "folder to write", Need::kRequired);
//   if (!options.parse(args)) return base::kOk;
class Options {
 public:
  Options(const std::string& command, const std::string& description);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void flag(const std::string& name, bool& value, const std::string& help);

  // T is std::string, std::int64_t, double, a std::optional of these, or, for what may be given
  // several times, std::vector<std::string>.
  template <typename T>
  void add(const std::string& name, T& value, const std::string& help, Need need = Need::kOptional);

  // Of the options named, at most one may be given; they must have been added.
  void at_most_one(const std::vector<std::string>& names);

  // False when --help was asked for and printed. Throws UsageError for what was not declared, is
  // missing, or has a value of another type.
  bool parse(Args args);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// The options of every command that reads a run's config.
struct ConfigOptions {
  std::string file;
  std::vector<std::string> overrides;

  // --config FILE and --set PATH=VALUE; `need` is that of --config.
  void add_to(Options& options, Need need = Need::kRequired);
};

}  // namespace g2::cli
