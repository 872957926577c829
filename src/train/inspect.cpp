#include "train/inspect.h"

#include <map>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "data/token_file.h"
#include "io/safetensors.h"
#include "model/hf_config.h"
#include "model/hf_folder.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_store.h"

namespace g2::train {
namespace {

using base::cat;
using std::filesystem::path;

class Lines {
 public:
  template <typename... Args>
  void add(std::string_view title, const Args&... values) {
    out_ << title << std::string(title.size() < 13 ? 13 - title.size() : 1, ' ');
    (out_ << ... << values) << '\n';
  }
  std::string text() const { return out_.str(); }

 private:
  std::ostringstream out_;
};

std::string size_text(std::uint64_t bytes) {
  return base::bytes_text(static_cast<double>(bytes));
}

// "BF16 (286), F32 (2)"
template <typename Tensors>
std::string types_text(const Tensors& tensors) {
  std::map<std::string_view, int> counts;
  for (const io::TensorInfo* tensor : tensors) ++counts[io::type_name(tensor->type)];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += cat(text.empty() ? "" : ", ", name, " (", count, ")");
  }
  return text;
}

std::string inspect_checkpoint(const path& folder, Verify verify) {
  if (verify == Verify::kEveryByte) {
    if (const auto damage = find_damage(folder)) throw base::IoError(*damage);
  }
  const Checkpoint checkpoint(folder);
  const CheckpointInfo& info = checkpoint.info();
  Lines lines;
  lines.add("checkpoint", folder.string());
  lines.add("step", info.step);
  lines.add("tokens", info.tokens);
  lines.add("next sample", info.cursor);
  lines.add("seed", info.seed);
  if (info.best) {
    lines.add("best",
              "validation loss ",
              base::number_text(info.best->val_loss),
              " at step ",
              info.best->step);
  }
  for (const auto& [name, count] : info.counters) lines.add(name, count);
  lines.add("model", model::describe(info.model));
  lines.add("run", info.run_id, info.parent.empty() ? "" : ", went on from ", info.parent);
  lines.add("config",
            "hash ",
            info.config_hash,
            "; vocabulary ",
            info.vocabulary_hash,
            ", data ",
            info.data_hash);
  std::string kinds;
  for (const std::string& kind : checkpoint.manifest().kinds) {
    kinds += (kinds.empty() ? "" : ", ") + kind;
  }
  lines.add("tensors", checkpoint.manifest().tensors.size(), " of each kind: ", kinds);
  for (const FileRecord& file : checkpoint.manifest().files) {
    lines.add("file", file.name, "  ", size_text(file.bytes));
  }
  if (verify == Verify::kEveryByte) lines.add("verified", "every byte agrees with its hash");
  return lines.text();
}

std::string inspect_run(const path& folder, Verify verify) {
  Lines lines;
  lines.add("run", folder.string());
  for (const path& checkpoint : list_checkpoints(folder)) {
    std::string state;
    try {
      const CheckpointInfo info = Checkpoint(checkpoint).info();
      const auto damage = verify == Verify::kEveryByte ? find_damage(checkpoint) : std::nullopt;
      state = damage ? "damaged: " + *damage
                     : cat(base::count_text(static_cast<double>(info.tokens)), " tokens");
      if (info.best && info.best->step == info.step) {
        state += cat(", best: validation loss ", base::number_text(info.best->val_loss));
      }
    } catch (const base::Error& e) {
      state = cat("damaged: ", e.what());
    }
    lines.add(checkpoint.filename().string(), ' ', state);
  }
  return lines.text();
}

std::string inspect_model_folder(const path& folder, Verify verify) {
  const model::ParsedConfig parsed = model::read_hf_config(folder);
  for (const std::string& warning : parsed.warnings) base::log_warning(warning);
  const model::HfWeights weights(folder);
  std::vector<const io::TensorInfo*> tensors;
  std::map<std::string, std::uint64_t> files;
  for (const auto& [name, stored] : weights.tensors()) {
    tensors.push_back(stored.tensor);
    files[stored.file->path().filename().string()] += stored.tensor->end - stored.tensor->begin;
  }
  Lines lines;
  lines.add("folder", folder.string());
  lines.add("model", model::describe(parsed.config));
  lines.add("tensors", types_text(tensors));
  for (const auto& [name, bytes] : files) lines.add("file", name, "  ", size_text(bytes));
  if (verify == Verify::kEveryByte) {
    const auto notices = model::load_hf_weights(folder,
                                                parsed.config,
                                                model::ParameterTable(parsed.config),
                                                [](const auto&, std::int64_t, auto) {});
    for (const std::string& notice : notices) lines.add("notice", notice);
    lines.add("verified", "every tensor is there, of the right shape, and finite");
  }
  return lines.text();
}

std::string inspect_safetensors(const path& file) {
  const io::SafetensorsFile opened(file);
  Lines lines;
  lines.add("file", file.string());
  for (const auto& [key, value] : opened.metadata()) lines.add("metadata", key, ": ", value);
  std::uint64_t bytes = 0;
  std::vector<const io::TensorInfo*> tensors;
  for (const io::TensorInfo& tensor : opened.tensors()) {
    lines.add("tensor", tensor.name, "  ", tensor.describe());
    bytes += tensor.end - tensor.begin;
    tensors.push_back(&tensor);
  }
  lines.add("tensors", tensors.size(), ", ", size_text(bytes), ": ", types_text(tensors));
  return lines.text();
}

std::string inspect_tokens(const path& file, Verify verify) {
  const data::TokenFile tokens(file);
  Lines lines;
  lines.add("token file", file.string());
  lines.add("documents", tokens.documents());
  lines.add("tokens", tokens.tokens());
  lines.add("vocabulary",
            tokens.info().vocab_size,
            " ids, hash ",
            base::hex64(tokens.info().vocabulary_hash));
  if (verify == Verify::kEveryByte) {
    tokens.verify();
    lines.add("verified", "every id is in the vocabulary, the content agrees with its hash");
  }
  return lines.text();
}

}  // namespace

std::string inspect(const path& given, Verify verify) {
  if (!std::filesystem::exists(given)) throw base::IoError(cat(given.string(), ": is not there"));
  if (std::filesystem::is_directory(given)) {
    if (std::filesystem::exists(given / "manifest.json")) return inspect_checkpoint(given, verify);
    if (std::filesystem::exists(given / "checkpoints")) return inspect_run(given, verify);
    if (std::filesystem::exists(given / "config.json")) return inspect_model_folder(given, verify);
    throw base::UsageError(cat(given.string(),
                               ": is no run folder, checkpoint (manifest.json) or model folder "
                               "(config.json)"));
  }
  if (data::is_token_file(given)) return inspect_tokens(given, verify);
  if (given.extension() == ".safetensors") return inspect_safetensors(given);
  throw base::UsageError(cat(given.string(), ": is no token file and no .safetensors"));
}

}  // namespace g2::train
