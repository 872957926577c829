// gemma2_train version: version, commit, compiler, and what is built in. CMakeLists.txt defines the
// G2_BUILD_* texts; a part that was not found has an empty one.
#include "cli/version.h"

#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"

namespace g2::cli {
namespace {

struct Part {
  const char* name;
  std::string version;  // "" when not built in
  const char* without;  // what then does not work
};

const Part kParts[] = {
    {"CUDA", G2_BUILD_CUDA, "computes on the CPU only"},
    {"OpenBLAS", G2_BUILD_OPENBLAS, "matrix products use slower loops of our own"},
    {"SentencePiece", G2_BUILD_SENTENCEPIECE, "the byte tokenizer only"},
    {"MPI", "", "one rank"},
    {"NCCL", "", "one GPU"},
};

}  // namespace

std::string version_text() {
  return base::cat(G2_BUILD_VERSION, " (", G2_BUILD_COMMIT, ")");
}

int version(Args args) {
  Options options("version", "Prints version, commit, compiler, and what is built in.");
  if (!options.parse(args)) return base::kOk;
  std::printf("gemma2_train %s\n", version_text().c_str());
  std::printf("  %-14s %s, %s\n", "compiler", G2_BUILD_COMPILER, G2_BUILD_TYPE);
  for (const Part& part : kParts) {
    if (part.version.empty()) {
      std::printf("  %-14s not built in: %s\n", part.name, part.without);
    } else {
      std::printf("  %-14s %s\n", part.name, part.version.c_str());
    }
  }
  return base::kOk;
}

}  // namespace g2::cli
