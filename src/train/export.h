// From a checkpoint to a Hugging Face folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "model/hf_export.h"
#include "train/checkpoint_manifest.h"

namespace g2::train {

// Where the files of a run's tokenizer are: the folder of a SentencePiece model that has other
// tokenizer files beside it, else the model; empty for the byte tokenizer. `tokenizer` is the
// setting data.tokenizer. Throws IoError when nothing is there.
std::filesystem::path tokenizer_files(const std::string& tokenizer);

// The setting data.tokenizer of the run that wrote a checkpoint.
std::string tokenizer_of(const CheckpointInfo& info);

// Writes the master weights of a checkpoint, which must be whole (require_checkpoint). Memory does
// not grow with the model. Returns warnings; throws as model::write_hf_folder.
std::vector<std::string> export_checkpoint(base::FileSystem& files,
                                           const std::filesystem::path& checkpoint,
                                           const model::HfExport& options);

}  // namespace g2::train
