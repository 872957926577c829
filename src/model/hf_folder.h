// The weights of a Hugging Face folder: found, checked and handed out in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/gemma2_config.h"
#include "model/parameter_table.h"

namespace g2::model {

// Receives elements [begin, begin + values.size()) of a parameter.
using WeightSink = std::function<void(
    const Parameter& parameter, std::int64_t begin, std::span<const float> values)>;

// The safetensors files of a folder, mapped, under the names of the parameter table. Reads
// model.safetensors, else the shards that model.safetensors.index.json names, with tensor names
// with or without "model.". Throws DataError or IoError for a folder without weights, an incomplete
// file, and an index that does not fit its shards.
class HfWeights {
 public:
  explicit HfWeights(const std::filesystem::path& folder);

  struct Stored {
    const io::SafetensorsFile* file = nullptr;
    const io::TensorInfo* tensor = nullptr;
  };

  const std::map<std::string, Stored, std::less<>>& tensors() const { return tensors_; }

  // Elements [begin, begin + out.size()) of a tensor in float: exact for F32, BF16 and F16.
  static void read(const Stored& stored, std::int64_t begin, std::span<float> out);

 private:
  void open_single(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);
  void add(const std::string& name, const Stored& stored);

  std::vector<std::unique_ptr<io::SafetensorsFile>> files_;
  std::map<std::string, Stored, std::less<>> tensors_;
};

// Gives every parameter of `table` to `sink`, in table order and in ascending pieces of at most
// 16 MiB. Which tensors there are, their shapes and types are checked before the first call;
// missing, unknown and misshapen ones, and values that are not finite, are DataErrors naming file
// and tensor.
//
// A tied config takes the embedding for the head; a second, different table in the folder is left
// out with a notice. Without an embedding the head serves as one. Returns notices, one line each.
std::vector<std::string> load_hf_weights(const std::filesystem::path& folder,
                                         const Gemma2Config& config,
                                         const ParameterTable& table,
                                         const WeightSink& sink);

}  // namespace g2::model
