// What a file or folder of this program, or of Hugging Face, holds, in words.
#pragma once

#include <filesystem>
#include <string>

namespace g2::train {

enum class Verify { kHeaders, kEveryByte };

// A run folder, a checkpoint, a Hugging Face folder, a safetensors file or a token file. Several
// lines. kEveryByte checks the hashes of checkpoints and that all weights of a folder are finite.
// Throws IoError or DataError for what is damaged, UsageError for what is none of these.
std::string inspect(const std::filesystem::path& path, Verify verify);

}  // namespace g2::train
