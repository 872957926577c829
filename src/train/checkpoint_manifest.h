// manifest.json: what a checkpoint is and how to tell that it is whole.
//
// The manifest is written last. It holds a hash of each block of the other files and, at its end, a
// hash of its own text, so that any changed byte of a checkpoint is found and named.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/gemma2_config.h"

namespace g2::train {

inline constexpr std::uint64_t kHashBlockBytes = 16 << 20;

struct BestResult {
  std::int64_t step = 0;
  double val_loss = 0;
};

// Everything a resumed run needs beside the tensors.
struct CheckpointInfo {
  std::int64_t step = 0;    // optimizer steps done
  std::int64_t tokens = 0;  // seen, counted over all steps
  std::int64_t cursor = 0;  // global index of the next sample
  std::uint64_t seed = 0;
  std::optional<BestResult> best;
  std::map<std::string, std::int64_t> counters;  // of the trainer: skipped steps, ...
  model::Gemma2Config model;
  std::string config_json = "{}";  // the effective config of the run
  std::string config_hash;         // config::config_hash of it
  std::string vocabulary_hash;
  std::string data_hash;
  std::string run_id;  // of the run folder
  std::string parent;  // "run_id/step" this run started from; empty: from scratch
};

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<std::string> block_hashes;  // XXH3-128 of each kHashBlockBytes
};

struct Manifest {
  CheckpointInfo info;
  std::vector<TensorShape> tensors;
  std::vector<std::string> kinds;  // "master", "m", "v": each holds every tensor
  std::vector<FileRecord> files;
};

std::string to_json(const Manifest& manifest);

// Throws DataError "where: ..." when the text is not exactly what to_json wrote, or comes from
// another version of the format.
Manifest parse_manifest(std::string_view text, const std::string& where);

}  // namespace g2::train
