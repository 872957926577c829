#include "train/checkpoint_manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/hf_config.h"

namespace g2::train {
namespace {

using base::cat;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::string_view kFormat = "gemma2_train checkpoint";
// The text ends in this, 32 hexadecimal digits over all text before, and kTail.
constexpr std::string_view kSelfHash = ",\n  \"xxh3_128\": \"";
constexpr std::string_view kTail = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;

ordered_json best_json(const std::optional<BestResult>& best) {
  if (!best) return nullptr;
  return {{"step", best->step}, {"val_loss", best->val_loss}};
}

CheckpointInfo read_info(const ordered_json& root, const std::string& where) {
  CheckpointInfo info;
  root.at("step").get_to(info.step);
  root.at("tokens").get_to(info.tokens);
  root.at("cursor").get_to(info.cursor);
  root.at("seed").get_to(info.seed);
  const ordered_json& best = root.at("best");
  if (!best.is_null()) {
    info.best = BestResult{best.at("step").get<std::int64_t>(), best.at("val_loss").get<double>()};
  }
  for (const auto& [name, value] : root.at("counters").items()) {
    info.counters[name] = value.get<std::int64_t>();
  }
  info.model = model::parse_hf_config(root.at("model").dump(), where).config;
  info.config_json = root.at("config").dump();
  root.at("config_hash").get_to(info.config_hash);
  root.at("vocabulary_hash").get_to(info.vocabulary_hash);
  root.at("data_hash").get_to(info.data_hash);
  root.at("run_id").get_to(info.run_id);
  root.at("parent").get_to(info.parent);
  return info;
}

Manifest read_manifest(const ordered_json& root, const std::string& where) {
  Manifest manifest;
  manifest.info = read_info(root, where);
  root.at("kinds").get_to(manifest.kinds);
  for (const ordered_json& tensor : root.at("tensors")) {
    manifest.tensors.push_back({tensor.at("name").get<std::string>(),
                                tensor.at("shape").get<std::vector<std::int64_t>>()});
  }
  for (const ordered_json& file : root.at("files")) {
    manifest.files.push_back({file.at("name").get<std::string>(),
                              file.at("bytes").get<std::uint64_t>(),
                              file.at("xxh3_128").get<std::vector<std::string>>()});
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  ordered_json root = {{"format", kFormat},
                       {"version", kVersion},
                       {"step", info.step},
                       {"tokens", info.tokens},
                       {"cursor", info.cursor},
                       {"seed", info.seed},
                       {"best", best_json(info.best)},
                       {"counters", info.counters},
                       {"run_id", info.run_id},
                       {"parent", info.parent},
                       {"vocabulary_hash", info.vocabulary_hash},
                       {"data_hash", info.data_hash},
                       {"model", ordered_json::parse(model::to_hf_config(info.model, "float32"))},
                       {"config", ordered_json::parse(info.config_json)},
                       {"config_hash", info.config_hash},
                       {"kinds", manifest.kinds},
                       {"tensors", ordered_json::array()},
                       {"files", ordered_json::array()}};
  for (const TensorShape& tensor : manifest.tensors) {
    root["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  for (const FileRecord& file : manifest.files) {
    root["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.block_hashes}});
  }
  std::string text = root.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  const std::string hash = base::hash128_hex(text.data(), text.size());
  return cat(text, kSelfHash, hash, kTail);
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const std::size_t end_bytes = kSelfHash.size() + kHashDigits + kTail.size();
  const std::size_t hashed = text.size() < end_bytes ? 0 : text.size() - end_bytes;
  const std::string end = cat(kSelfHash, base::hash128_hex(text.data(), hashed), kTail);
  if (text.substr(hashed) != end) {
    throw base::DataError(cat(where, ": is cut or changed (its own hash differs)"));
  }
  try {
    const ordered_json root = ordered_json::parse(text);
    if (root.at("format") != kFormat || root.at("version") != kVersion) {
      throw base::DataError(cat(where,
                                ": is ",
                                root.at("format").dump(),
                                " version ",
                                root.at("version").dump(),
                                ", this program reads version ",
                                kVersion));
    }
    return read_manifest(root, where);
  } catch (const ordered_json::exception& e) {
    throw base::DataError(
        cat(where, ": is not a manifest of this program: ", base::json_reason(e.what())));
  }
}

}  // namespace g2::train
