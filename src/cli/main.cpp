// gemma2_train: picks the subcommand, and turns an error into one line and an exit code.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"

namespace g2::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "train, or resume, from a config (the default)", train},
    {"plan", "parameters, memory, FLOPs and tokens of a run, before it runs", plan},
    {"tokenize", "write text as a token file", tokenize},
    {"eval", "loss, perplexity and bits per byte of a model on a text", eval},
    {"generate", "continue a prompt", generate},
    {"verify", "train a config and compare every step with a reference log", verify},
    {"export", "write a checkpoint as a Hugging Face folder", export_model},
    {"inspect", "tell what a run, checkpoint, model folder or file holds", inspect},
    {"config", "print the effective config, where each value comes from, or the reference", config},
    {"version", "print version, commit, compiler, and what is built in", version},
};

void print_help() {
  std::puts("Trains Gemma 2.\n\nusage: gemma2_train COMMAND [OPTION...]\n");
  for (const Command& command : kCommands) {
    std::printf("  %-10s %s\n", command.name.data(), command.help);
  }
  std::puts("\ngemma2_train COMMAND --help shows its options. Exit codes: docs/exit_codes.md");
}

int run_command(std::string_view name, Args args) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(args);
    names.emplace_back(command.name);
  }
  throw base::UsageError(base::cat(
      "no command '", name, "'", base::did_you_mean(name, names), "; see gemma2_train --help"));
}

int dispatch(Args args) {
  const std::string_view first = args.empty() ? "" : args[0];
  if (first.empty() || first == "--help" || first == "-h") {
    print_help();
    return base::kOk;
  }
  if (first == "--version") return version(args.subspan(1));
  if (first == "--help-config") return config(args);
  if (first.starts_with("-")) return run_command("train", args);  // the main job needs no name
  return run_command(first, args.subspan(1));
}

// What a command printed may still sit in a buffer when the disk is full or the pipe is closed.
void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    throw base::IoError(base::cat("standard output: ", std::strerror(errno)));
  }
}

}  // namespace
}  // namespace g2::cli

int main(int argc, char** argv) {
  try {
    const int code = g2::cli::dispatch(g2::cli::Args(argv, argc).subspan(1));
    g2::cli::flush_output();
    return code;
  } catch (const g2::base::Error& e) {  // usage, data, device, ...: one line, its own code
    std::fprintf(stderr, "gemma2_train: %s\n", e.what());
    return e.exit_code();
  } catch (const std::exception& e) {  // a bug of ours, or no memory
    std::fprintf(stderr, "gemma2_train: internal error: %s\n", e.what());
    return g2::base::kDevice;
  }
}
