#include "model/hf_export.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bf16.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "model/hf_config.h"

namespace g2::model {
namespace {

using base::cat;
using nlohmann::ordered_json;

constexpr std::int64_t kPieceElements = 1 << 22;

// What users and other programs look for beside the weights.
constexpr const char* kCopiedFiles[] = {
    "tokenizer.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

struct Shard {
  std::string name;
  std::vector<const Parameter*> parameters;
};

std::uint64_t stored_bytes(const Parameter& parameter, ExportType type) {
  return static_cast<std::uint64_t>(parameter.count) * (type == ExportType::kF32 ? 4 : 2);
}

// In table order; a parameter larger than the limit has a file of its own.
std::vector<Shard> cut_shards(const ParameterTable& table, const HfExport& options) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : table.parameters()) {
    const std::uint64_t added = stored_bytes(parameter, options.type);
    if (bytes > 0 && bytes + added > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().parameters.push_back(&parameter);
    bytes += added;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64] = "model.safetensors";
    if (shards.size() > 1) {
      std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    }
    shards[i].name = name;
  }
  return shards;
}

// Absolute, without a slash at the end.
std::filesystem::path normal_path(const std::filesystem::path& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

class FolderWriter {
 public:
  FolderWriter(base::FileSystem& files,
               const HfExport& options,
               const Gemma2Config& config,
               const WeightSource& source)
      : files_(files),
        options_(options),
        config_(config),
        source_(source),
        table_(config),
        folder_(normal_path(options.folder)) {}

  std::vector<std::string> write() {
    check_target();
    make_parent();
    check_space();
    check_query_scale();
    const std::filesystem::path temporary = folder_.string() + ".tmp-" + base::unique_suffix();
    files_.create_folder(temporary);
    try {
      fill(temporary);
      files_.sync_folder(temporary);
      publish(temporary);
    } catch (...) {
      discard(temporary);
      throw;
    }
    return warnings_;
  }

 private:
  void check_target() const {
    if (!std::filesystem::exists(folder_)) return;
    if (!std::filesystem::is_directory(folder_)) {
      throw base::FolderError(cat(folder_.string(), ": is a file; give the name of a folder"));
    }
    if (std::filesystem::is_empty(folder_)) return;
    if (!options_.force) {
      throw base::FolderError(
          cat(folder_.string(), ": is not empty; choose another folder, or --force to replace it"));
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.is_directory()) {
        throw base::FolderError(cat(folder_.string(),
                                    ": holds the folder ",
                                    entry.path().filename().string(),
                                    ", so it is no exported model; remove it yourself"));
      }
    }
  }

  void make_parent() const {
    std::error_code error;
    std::filesystem::create_directories(folder_.parent_path(), error);
    if (error) {
      throw base::FolderError(
          cat(folder_.parent_path().string(), ": cannot create: ", error.message()));
    }
  }

  void check_space() const {
    constexpr std::uint64_t kOtherFiles = 64 << 20;  // tokenizer, headers
    std::uint64_t needed = kOtherFiles;
    for (const Parameter& parameter : table_.parameters()) {
      needed += stored_bytes(parameter, options_.type);
    }
    const std::filesystem::path parent = folder_.parent_path();
    const std::uint64_t available = files_.free_bytes(parent);
    if (available < needed) {
      throw base::IoError(cat(parent.string(),
                              ": needs ",
                              base::bytes_text(static_cast<double>(needed)),
                              " for the model, ",
                              base::bytes_text(static_cast<double>(available)),
                              " are free"));
    }
  }

  // What other programs will make of the scale of the attention scores.
  void check_query_scale() {
    const double scalar = config_.query_pre_attn_scalar;
    if (scalar != std::floor(scalar)) {
      warnings_.push_back(cat("query_pre_attn_scalar is ",
                              base::number_text(scalar),
                              "; transformers 5 refuses a config where it is no whole number"));
    }
    // GGUF has no place for it: llama.cpp guesses it from the number of layers.
    const double guess = config_.num_hidden_layers == 46
                             ? static_cast<double>(config_.hidden_size) /
                                   static_cast<double>(config_.num_attention_heads)
                             : static_cast<double>(config_.head_dim);
    if (guess == scalar) return;
    warnings_.push_back(cat("query_pre_attn_scalar is ",
                            base::number_text(scalar),
                            ", but llama.cpp will take ",
                            base::number_text(guess),
                            " after a conversion to GGUF; transformers and vLLM read it"));
  }

  void fill(const std::filesystem::path& folder) {
    const std::vector<Shard> shards = cut_shards(table_, options_);
    for (const Shard& shard : shards) write_shard(folder, shard);
    if (shards.size() > 1) write_index(folder, shards);
    const bool is_f32 = options_.type == ExportType::kF32;
    base::write_new_file(
        files_, folder / "config.json", to_hf_config(config_, is_f32 ? "float32" : "bfloat16"));
    copy_tokenizer(folder);
    if (!std::filesystem::exists(folder / "generation_config.json")) {
      base::write_new_file(files_, folder / "generation_config.json", generation_config());
    }
  }

  void write_shard(const std::filesystem::path& folder, const Shard& shard) {
    const bool is_f32 = options_.type == ExportType::kF32;
    std::vector<io::TensorInfo> tensors;
    for (const Parameter* parameter : shard.parameters) {
      tensors.push_back({.name = parameter->name,
                         .type = is_f32 ? io::FileType::kF32 : io::FileType::kBF16,
                         .shape = parameter->shape});
    }
    base::OutputFile file(
        files_, folder / shard.name, io::SafetensorsWriter::file_bytes_of(tensors, {}));
    io::SafetensorsWriter writer(tensors, {}, [&file](io::Bytes bytes) { file.write(bytes); });
    for (const Parameter* parameter : shard.parameters) write_parameter(*parameter, writer);
    writer.finish();
    file.finish();
  }

  void write_parameter(const Parameter& parameter, io::SafetensorsWriter& writer) {
    for (std::int64_t begin = 0; begin < parameter.count; begin += kPieceElements) {
      values_.resize(static_cast<std::size_t>(std::min(kPieceElements, parameter.count - begin)));
      source_(parameter, begin, values_);
      if (options_.type == ExportType::kF32) {
        writer.append(std::as_bytes(std::span(values_)));
        continue;
      }
      rounded_.resize(values_.size());
      std::transform(values_.begin(), values_.end(), rounded_.begin(), [](float value) {
        return bf16(value);
      });
      writer.append(std::as_bytes(std::span(rounded_)));
    }
  }

  void write_index(const std::filesystem::path& folder, const std::vector<Shard>& shards) {
    std::uint64_t total = 0;
    std::map<std::string, std::string> weight_map;
    for (const Shard& shard : shards) {
      for (const Parameter* parameter : shard.parameters) {
        total += stored_bytes(*parameter, options_.type);
        weight_map[parameter->name] = shard.name;
      }
    }
    const ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    base::write_new_file(files_, folder / "model.safetensors.index.json", index.dump(2) + "\n");
  }

  void copy_tokenizer(const std::filesystem::path& folder) {
    const std::filesystem::path& from = options_.tokenizer;
    if (from.empty()) {
      warnings_.push_back("no tokenizer files are written: the run has none that others can read");
      return;
    }
    if (!std::filesystem::is_directory(from)) {
      copy(from, folder / "tokenizer.model");
      base::write_new_file(files_, folder / "tokenizer_config.json", gemma_tokenizer_config());
      return;
    }
    for (const char* name : kCopiedFiles) {
      if (std::filesystem::exists(from / name)) copy(from / name, folder / name);
    }
  }
  void copy(const std::filesystem::path& from, const std::filesystem::path& to) {
    base::write_new_file(files_, to, base::read_file(from));
  }

  std::string generation_config() const {
    ordered_json out = {{"_from_model_config", true}};
    if (config_.bos_token_id >= 0) out["bos_token_id"] = config_.bos_token_id;
    if (config_.eos_token_ids.size() == 1) out["eos_token_id"] = config_.eos_token_ids[0];
    if (config_.eos_token_ids.size() > 1) out["eos_token_id"] = config_.eos_token_ids;
    if (config_.pad_token_id >= 0) out["pad_token_id"] = config_.pad_token_id;
    return out.dump(2) + "\n";
  }

  std::string gemma_tokenizer_config() const {
    const SpecialPieces& pieces = options_.pieces;
    const ordered_json out = {{"tokenizer_class", "GemmaTokenizer"},
                              {"add_bos_token", true},
                              {"add_eos_token", false},
                              {"bos_token", pieces.bos},
                              {"eos_token", pieces.eos},
                              {"pad_token", pieces.pad},
                              {"unk_token", pieces.unk},
                              {"clean_up_tokenization_spaces", false}};
    return out.dump(2) + "\n";
  }

  // The old folder moves aside first: a folder cannot be renamed over one that is not empty.
  void publish(const std::filesystem::path& temporary) {
    const bool replaces = std::filesystem::exists(folder_) && !std::filesystem::is_empty(folder_);
    const std::filesystem::path old = folder_.string() + ".old-" + base::unique_suffix();
    if (replaces) files_.rename(folder_, old);
    try {
      files_.rename(temporary, folder_);
    } catch (...) {
      if (replaces) files_.rename(old, folder_);
      throw;
    }
    files_.sync_folder(folder_.parent_path());
    if (replaces) base::remove_tree(files_, old);
  }

  void discard(const std::filesystem::path& temporary) noexcept {
    try {
      if (std::filesystem::exists(temporary)) base::remove_tree(files_, temporary);
    } catch (const std::exception&) {  // the first failure is the one to report
    }
  }

  base::FileSystem& files_;
  const HfExport& options_;
  const Gemma2Config& config_;
  const WeightSource& source_;
  const ParameterTable table_;
  const std::filesystem::path folder_;
  std::vector<float> values_;
  std::vector<bf16> rounded_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> write_hf_folder(base::FileSystem& files,
                                         const HfExport& options,
                                         const Gemma2Config& config,
                                         const WeightSource& source) {
  return FolderWriter(files, options, config, source).write();
}

}  // namespace g2::model
