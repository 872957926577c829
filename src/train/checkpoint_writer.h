// The files of one checkpoint: tensors in pieces, addressed by name and range.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "model/parameter_table.h"
#include "tensor/dtype.h"
#include "train/checkpoint_manifest.h"

namespace g2::train {

// Elements [begin, begin + count) of a parameter, of one kind ("master", "m", "v"), in host memory.
struct CheckpointRange {
  std::string kind;
  std::string name;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  void* host = nullptr;
  DType dtype = DType::kF32;  // or kF64
};

// One range a parameter, into a flat host buffer [flat_size] laid out by the table; null where only
// sizes matter.
std::vector<CheckpointRange> flat_ranges(const model::ParameterTable& table,
                                         std::string_view kind,
                                         void* flat_host,
                                         DType dtype);

// "state-00000-of-00001.safetensors".
std::string state_file_name(int rank, int ranks);

// Bytes of the file that write_state_file makes.
std::uint64_t state_file_bytes(std::span<const CheckpointRange> ranges);

// Writes one rank's ranges as 1-D tensors "kind/name/begin", synced, hashing on the way.
FileRecord write_state_file(base::FileSystem& files,
                            const std::filesystem::path& folder,
                            int rank,
                            int ranks,
                            std::span<const CheckpointRange> ranges);

}  // namespace g2::train
