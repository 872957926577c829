#include "model/hf_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace g2::model {
namespace {

using base::cat;
using nlohmann::json;

constexpr std::int64_t kPieceElements = 1 << 22;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// Gemma2Model exports leave "model." out.
std::string full_name(const std::string& name) {
  return name.starts_with("model.") || name == kHead ? name : "model." + name;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// Runs over [0, count) in pieces of at most kPieceElements: body(begin, size).
template <typename Body>
void in_pieces(std::int64_t count, Body&& body) {
  for (std::int64_t begin = 0; begin < count; begin += kPieceElements) {
    body(begin, std::min(kPieceElements, count - begin));
  }
}

bool is_float(io::FileType type) {
  return type == io::FileType::kF32 || type == io::FileType::kBF16 || type == io::FileType::kF16;
}

[[noreturn]] void fail(const HfWeights::Stored& stored, const std::string& message) {
  throw base::DataError(cat(stored.file->path().string(), ": ", stored.tensor->name, ' ', message));
}

void check_stored(const Parameter& parameter, const HfWeights::Stored& stored) {
  if (!is_float(stored.tensor->type)) {
    fail(stored,
         cat("has type ",
             io::type_name(stored.tensor->type),
             ", expected F32, BF16 or F16; quantised weights cannot be read"));
  }
  if (stored.tensor->shape != parameter.shape) {
    fail(stored,
         cat("has shape ",
             shape_text(stored.tensor->shape),
             ", expected ",
             shape_text(parameter.shape),
             "; use the config.json that belongs to this file"));
  }
}

// Bits of the values: true also where both hold the same NaN.
bool same_values(const HfWeights::Stored& a, const HfWeights::Stored& b) {
  if (a.tensor->shape != b.tensor->shape) return false;
  if (!is_float(a.tensor->type) || !is_float(b.tensor->type)) return false;
  bool same = true;
  std::vector<float> left;
  std::vector<float> right;
  in_pieces(a.tensor->elements(), [&](std::int64_t begin, std::int64_t size) {
    if (!same) return;
    left.resize(static_cast<std::size_t>(size));
    right.resize(static_cast<std::size_t>(size));
    HfWeights::read(a, begin, left);
    HfWeights::read(b, begin, right);
    same = std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
  });
  return same;
}

// Which stored tensor serves which parameter, and what the folder holds beside them.
class Assignment {
 public:
  Assignment(const std::filesystem::path& folder,
             const HfWeights& weights,
             const Gemma2Config& config,
             const ParameterTable& table)
      : folder_(folder), left_(weights.tensors()) {
    if (config.tie_word_embeddings) tie_head();
    for (const Parameter& parameter : table.parameters()) take(parameter);
    check_missing();
    check_left(table);
  }

  const HfWeights::Stored& of(const Parameter& parameter) const {
    return taken_.at(parameter.name);
  }
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void tie_head() {
    const auto head = left_.find(kHead);
    if (head == left_.end()) return;
    const auto embedding = left_.find(kEmbedding);
    if (embedding == left_.end()) {
      left_[kEmbedding] = head->second;
    } else if (!same_values(embedding->second, head->second)) {
      notices_.push_back(cat(head->second.file->path().string(),
                             ": ",
                             kHead,
                             " differs from ",
                             kEmbedding,
                             " and is left out, for tie_word_embeddings is true"));
    }
    left_.erase(kHead);
  }

  void take(const Parameter& parameter) {
    const auto found = left_.find(parameter.name);
    if (found == left_.end()) {
      missing_.push_back(parameter.name);
      return;
    }
    check_stored(parameter, found->second);
    taken_[parameter.name] = found->second;
    left_.erase(found);
  }

  void check_missing() const {
    if (missing_.empty()) return;
    const bool only_head = missing_.size() == 1 && missing_[0] == kHead;
    throw base::DataError(
        cat(folder_.string(),
            ": no tensor ",
            missing_[0],
            missing_.size() > 1 ? cat(" and ", missing_.size() - 1, " more") : "",
            only_head ? "; the config says tie_word_embeddings false, but the weights are tied"
                      : "; incomplete download, or a config.json that belongs to other weights"));
  }

  void check_left(const ParameterTable& table) {
    std::vector<std::string> names;
    for (const Parameter& parameter : table.parameters()) names.push_back(parameter.name);
    for (const auto& [name, stored] : left_) {
      if (name.ends_with("rotary_emb.inv_freq")) {
        notices_.push_back(cat(stored.file->path().string(),
                               ": ",
                               stored.tensor->name,
                               " is computed here and left out"));
        continue;
      }
      fail(stored,
           cat("is no tensor of this Gemma 2",
               base::did_you_mean(name, names),
               "; use the config.json that belongs to this file"));
    }
  }

  const std::filesystem::path& folder_;
  std::map<std::string, HfWeights::Stored, std::less<>> left_;
  std::map<std::string, HfWeights::Stored> taken_;
  std::vector<std::string> missing_;
  std::vector<std::string> notices_;
};

void check_finite(const HfWeights::Stored& stored,
                  std::int64_t begin,
                  std::span<const float> values) {
  const auto bad = std::find_if_not(
      values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  fail(stored,
       cat("holds ",
           *bad,
           " at element ",
           begin + (bad - values.begin()),
           "; such weights cannot be trained"));
}

// {tensor: file} of an index, each file a plain name.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  json root;
  try {
    root = json::parse(base::read_file(path));
  } catch (const json::exception& e) {
    throw base::DataError(cat(path.string(), ": ", base::json_reason(e.what())));
  }
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty()) {
    throw base::DataError(cat(path.string(), ": has no weight_map"));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : map->items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file != std::filesystem::path(file).filename()) {
      throw base::DataError(cat(path.string(),
                                ": ",
                                name,
                                " is in ",
                                value.dump(),
                                ", expected the name of a file beside the index"));
    }
    files[name] = file;
  }
  return files;
}

[[noreturn]] void no_weights(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model-") && name.ends_with(".safetensors")) {
      throw base::DataError(
          cat(folder.string(), ": holds ", name, " but no model.safetensors.index.json"));
    }
    if (name.ends_with(".bin") || name.ends_with(".gguf") || name.ends_with(".pth")) {
      throw base::DataError(cat(folder.string(),
                                ": holds ",
                                name,
                                "; only safetensors can be read: convert it with transformers "
                                "(save_pretrained)"));
    }
  }
  if (error) throw base::IoError(cat(folder.string(), ": cannot list: ", error.message()));
  throw base::DataError(
      cat(folder.string(), ": no model.safetensors or model.safetensors.index.json"));
}

}  // namespace

HfWeights::HfWeights(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "model.safetensors")) {
    open_single(folder / "model.safetensors");
  } else if (std::filesystem::exists(folder / "model.safetensors.index.json")) {
    open_shards(folder / "model.safetensors.index.json");
  } else {
    no_weights(folder);
  }
}

void HfWeights::open_single(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<io::SafetensorsFile>(path));
  for (const io::TensorInfo& tensor : files_[0]->tensors()) {
    add(tensor.name, {files_[0].get(), &tensor});
  }
}

void HfWeights::open_shards(const std::filesystem::path& index) {
  std::map<std::string, const io::SafetensorsFile*> opened;
  for (const auto& [name, file] : read_index(index)) {
    const io::SafetensorsFile*& shard = opened[file];
    if (shard == nullptr) {
      files_.push_back(std::make_unique<io::SafetensorsFile>(index.parent_path() / file));
      shard = files_.back().get();
    }
    const io::TensorInfo* tensor = shard->find(name);
    if (tensor == nullptr) {
      throw base::DataError(cat(shard->path().string(),
                                ": has no tensor ",
                                name,
                                ", which ",
                                index.filename().string(),
                                " places there; the two are of different models"));
    }
    add(name, {shard, tensor});
  }
}

void HfWeights::add(const std::string& name, const Stored& stored) {
  if (!tensors_.emplace(full_name(name), stored).second) {
    fail(stored, "is there with and without 'model.'");
  }
}

void HfWeights::read(const Stored& stored, std::int64_t begin, std::span<float> out) {
  const std::size_t width = io::type_bytes(stored.tensor->type);
  const io::Bytes bytes = stored.file->bytes(*stored.tensor)
                              .subspan(static_cast<std::size_t>(begin) * width, out.size() * width);
  io::decode(stored.tensor->type, bytes, out);
  base::MappedFile::release(bytes);  // else the whole model would become resident
}

std::vector<std::string> load_hf_weights(const std::filesystem::path& folder,
                                         const Gemma2Config& config,
                                         const ParameterTable& table,
                                         const WeightSink& sink) {
  const HfWeights weights(folder);
  const Assignment assignment(folder, weights, config, table);
  std::vector<float> piece;
  for (const Parameter& parameter : table.parameters()) {
    const HfWeights::Stored& stored = assignment.of(parameter);
    in_pieces(parameter.count, [&](std::int64_t begin, std::int64_t size) {
      piece.resize(static_cast<std::size_t>(size));
      HfWeights::read(stored, begin, piece);
      check_finite(stored, begin, piece);
      sink(parameter, begin, piece);
    });
  }
  return assignment.notices();
}

}  // namespace g2::model
