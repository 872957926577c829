#include "train/run_options.h"

#include <filesystem>
#include <variant>

namespace g2::train {
namespace {

DType dtype_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::kFp64:
      return DType::kF64;
    case config::Precision::kBf16:
      return DType::kBF16;
    case config::Precision::kFp32:
      break;
  }
  return DType::kF32;
}

}  // namespace

model::ModelOptions model_options(const config::RunConfig& c) {
  model::ModelOptions options;
  options.dtype = dtype_of(c.train.precision);
  options.max_tokens = c.train.micro_batch.value_or(c.train.global_batch) * c.data.seq_len;
  options.max_positions = c.data.seq_len;
  options.recompute = c.train.recompute == config::Recompute::kLayer   ? model::Recompute::kLayer
                      : c.train.recompute == config::Recompute::kNorms ? model::Recompute::kNorms
                                                                       : model::Recompute::kNone;
  options.lm_head_buffer_bytes = static_cast<std::size_t>(c.train.lm_head_buffer_mib) << 20;
  options.z_weight = c.train.z_loss;
  return options;
}

data::DatasetOptions dataset_options(const config::RunConfig& c, std::int32_t pad_id) {
  data::DatasetOptions options;
  options.train = c.data.train;
  if (const auto* paths = std::get_if<std::vector<std::string>>(&c.data.validation)) {
    options.validation = *paths;
  } else {
    options.validation_fraction = std::get<double>(c.data.validation);
  }
  options.documents = {.text_key = c.data.text_key, .skip_bad = c.data.skip_bad};
  options.samples = {.seq_len = c.data.seq_len,
                     .packing = c.data.packing == config::Packing::kDocuments
                                    ? data::Packing::kDocuments
                                    : data::Packing::kStream,
                     .pad_id = pad_id,
                     .seed = static_cast<std::uint64_t>(c.run.seed),
                     .shuffle = c.data.shuffle};
  options.cache_folder = std::filesystem::path(c.run.dir) / "data";
  return options;
}

}  // namespace g2::train
