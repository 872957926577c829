// Writes a Hugging Face folder that transformers, vLLM and llama.cpp read without edits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "model/gemma2_config.h"
#include "model/parameter_table.h"

namespace g2::model {

// Fills `out` with elements [begin, begin + out.size()) of a parameter.
using WeightSource =
    std::function<void(const Parameter& parameter, std::int64_t begin, std::span<float> out)>;

enum class ExportType { kF32, kBF16 };

// How the vocabulary spells its special ids.
struct SpecialPieces {
  std::string pad = "<pad>";
  std::string eos = "<eos>";
  std::string bos = "<bos>";
  std::string unk = "<unk>";
};

struct HfExport {
  std::filesystem::path folder = {};
  ExportType type = ExportType::kBF16;            // bf16 rounds to nearest even
  std::uint64_t max_shard_bytes = 5'000'000'000;  // of tensor data in a file
  // Tokenizer and generation files are copied unaltered from here: a folder, or a tokenizer.model,
  // to which the settings of Gemma's tokenizer are added. Empty: none.
  std::filesystem::path tokenizer = {};
  SpecialPieces pieces = {};  // for the settings beside a lone tokenizer.model
  bool force = false;         // replace a folder that is there
};

// Writes "<folder>.tmp-..", syncs it and renames it to the folder; a failure leaves no part of it,
// and a folder that was there stays. Memory: one piece of 16 MiB, whatever the model's size.
// Returns warnings, one line each.
// Throws FolderError when the folder exists and is not empty (or, with force, holds folders: not
// something this function wrote), IoError when the disk is too small or fails.
std::vector<std::string> write_hf_folder(base::FileSystem& files,
                                         const HfExport& options,
                                         const Gemma2Config& config,
                                         const WeightSource& source);

}  // namespace g2::model
