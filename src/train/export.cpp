#include "train/export.h"

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
#include "train/checkpoint_reader.h"

namespace g2::train {

std::filesystem::path tokenizer_files(const std::string& tokenizer) {
  if (tokenizer == "byte") return {};
  std::filesystem::path path = tokenizer;
  if (!std::filesystem::exists(path)) {
    throw base::IoError(base::cat(tokenizer,
                                  ": the tokenizer of the run is not there; say where it is "
                                  "(--tokenizer PATH), or 'byte' to write none"));
  }
  if (std::filesystem::is_directory(path)) return path;
  std::filesystem::path folder = path.parent_path();
  return std::filesystem::exists(folder / "tokenizer_config.json") ? folder : path;
}

std::string tokenizer_of(const CheckpointInfo& info) {
  return config::parse_config(info.config_json, "config of the checkpoint").config.data.tokenizer;
}

std::vector<std::string> export_checkpoint(base::FileSystem& files,
                                           const std::filesystem::path& checkpoint,
                                           const model::HfExport& options) {
  const Checkpoint source(checkpoint);
  return model::write_hf_folder(
      files,
      options,
      source.info().model,
      [&source](const model::Parameter& parameter, std::int64_t begin, std::span<float> out) {
        source.read("master", parameter.name, begin, out);
      });
}

}  // namespace g2::train
