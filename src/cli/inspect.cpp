// gemma2_train inspect: what a run, checkpoint, model folder, safetensors or token file holds.
#include "train/inspect.h"

#include <cstdio>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"

namespace g2::cli {

int inspect(Args args) {
  std::string path;
  bool verify = false;
  Options options("inspect",
                  "Tells what a run folder, checkpoint, Hugging Face folder, safetensors file or "
                  "token file holds.");
  options.add("path", path, "the file or folder", Need::kRequired);
  options.flag(
      "--verify", verify, "read every byte: checkpoint hashes, and weights that are finite");
  if (!options.parse(args)) return base::kOk;
  const std::string text =
      train::inspect(path, verify ? train::Verify::kEveryByte : train::Verify::kHeaders);
  std::fputs(text.c_str(), stdout);
  return base::kOk;
}

}  // namespace g2::cli
