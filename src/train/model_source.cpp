#include "train/model_source.h"

#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/load.h"
#include "model/hf_config.h"
#include "model/hf_folder.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_store.h"

namespace g2::train {
namespace {

namespace fs = std::filesystem;

// Floats into a range of the master weights, whatever their type.
void put_master(model::Model& model, std::int64_t begin, std::span<const float> values) {
  const Tensor range = model.master().rows(begin, begin + static_cast<std::int64_t>(values.size()));
  if (range.dtype == DType::kF32) {
    model.device().copy_from_host(range.data, values.data(), range.bytes());
  } else {
    const std::vector<double> wide(values.begin(), values.end());
    model.device().copy_from_host(range.data, wide.data(), range.bytes());
  }
}

void load_checkpoint_into(const fs::path& path, model::Model& model) {
  constexpr std::int64_t kPiece = 1 << 20;
  const Checkpoint checkpoint(path);
  std::vector<float> piece;
  for (const model::Parameter& p : model.table().parameters()) {
    for (std::int64_t begin = 0; begin < p.count; begin += kPiece) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, p.count - begin)));
      checkpoint.read("master", p.name, begin, piece);
      put_master(model, p.offset + begin, piece);
    }
  }
  model.refresh_compute_weights();
}

}  // namespace

void load_hf_into(const fs::path& folder, model::Model& model) {
  const auto put =
      [&](const model::Parameter& p, std::int64_t begin, std::span<const float> values) {
        put_master(model, p.offset + begin, values);
      };
  for (const std::string& notice :
       model::load_hf_weights(folder, model.config(), model.table(), put)) {
    base::log_warning(notice);
  }
  model.refresh_compute_weights();
}

ModelSource open_model_source(const fs::path& path) {
  ModelSource source;
  if (fs::exists(path / "checkpoints") || fs::exists(path / "manifest.json")) {
    source.path = require_checkpoint(path);
    const CheckpointInfo info = Checkpoint(source.path).info();
    source.config = info.model;
    source.run = config::parse_config(info.config_json, "config of the checkpoint").config;
    source.tokenizer = source.run->data.tokenizer;
    source.load = [from = source.path](model::Model& model) { load_checkpoint_into(from, model); };
    return source;
  }
  if (!fs::exists(path / "config.json")) {
    throw base::UsageError(
        base::cat(path.string(), ": neither a run folder, a checkpoint nor a Hugging Face folder"));
  }
  source.path = path;
  model::ParsedConfig parsed = model::read_hf_config(path);
  for (const std::string& warning : parsed.warnings) base::log_warning(warning);
  source.config = std::move(parsed.config);
  source.tokenizer = fs::exists(path / "tokenizer.model") ? path.string() : "byte";
  source.load = [path](model::Model& model) { load_hf_into(path, model); };
  return source;
}

}  // namespace g2::train
