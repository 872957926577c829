#include "io/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace g2::io {
namespace {

using base::cat;
using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr const char* kMetadataKey = "__metadata__";

struct TypeRow {
  FileType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr TypeRow kTypes[] = {
    {FileType::kF64, "F64", 8},
    {FileType::kF32, "F32", 4},
    {FileType::kBF16, "BF16", 2},
    {FileType::kF16, "F16", 2},
    {FileType::kI64, "I64", 8},
    {FileType::kI32, "I32", 4},
    {FileType::kI16, "I16", 2},
    {FileType::kI8, "I8", 1},
    {FileType::kU8, "U8", 1},
    {FileType::kBool, "BOOL", 1},
};

const TypeRow& row_of(FileType type) {
  return kTypes[static_cast<std::size_t>(type)];
}

// nlohmann's parser keeps the last of two equal keys; here a second one is an error.
class DuplicateKeys {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == json::parse_event_t::object_start) {
      if (keys_.size() <= level) keys_.resize(level + 1);
      keys_[level].clear();
    } else if (event == json::parse_event_t::key && !duplicate_) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_[level - 1].insert(key).second) duplicate_ = key;
    }
    return true;
  }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::optional<std::string> duplicate_;
};

class HeaderReader {
 public:
  HeaderReader(Bytes file, const std::string& where) : file_(file), where_(where) {}

  SafetensorsHeader read() {
    const json root = parse_json(header_text());
    data_bytes_ = file_.size() - header_.data_begin;
    for (const auto& [name, value] : root.items()) {
      if (name == kMetadataKey) {
        read_metadata(value);
      } else {
        read_tensor(name, value);
      }
    }
    check_coverage();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw base::DataError(cat(where_, ": ", message));
  }

  std::string_view header_text() {
    if (file_.size() < kLengthBytes) {
      fail(cat("holds ", file_.size(), " bytes, too short for a safetensors file"));
    }
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<std::uint64_t>(file_[i]);
    if (length > kMaxHeaderBytes) {
      fail(
          cat("header length ", length, " is over ", kMaxHeaderBytes, "; not a safetensors file?"));
    }
    if (length > file_.size() - kLengthBytes) {
      fail(cat("header of ",
               length,
               " bytes does not fit in the file of ",
               file_.size(),
               " bytes; incomplete download?"));
    }
    header_.data_begin = kLengthBytes + length;
    return {reinterpret_cast<const char*>(file_.data()) + kLengthBytes, length};
  }

  json parse_json(std::string_view text) const {
    DuplicateKeys keys;
    json root;
    try {
      root = json::parse(text, [&keys](int depth, json::parse_event_t event, json& parsed) {
        return keys(depth, event, parsed);
      });
    } catch (const json::exception& e) {  // a number beyond double is an out_of_range
      fail(cat("header is not JSON: ", base::json_reason(e.what())));
    }
    if (keys.duplicate()) fail(cat("header holds '", *keys.duplicate(), "' twice"));
    if (!root.is_object()) fail("header is not a JSON object");
    return root;
  }

  void read_metadata(const json& value) {
    if (!value.is_object()) fail(cat(kMetadataKey, " is not a JSON object"));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(cat(kMetadataKey, ".", key, " is not a string"));
      header_.metadata[key] = text.get<std::string>();
    }
  }

  void read_tensor(const std::string& name, const json& value) {
    const auto member = [&](const char* key) -> const json& {
      if (!value.is_object() || !value.contains(key)) fail(cat(name, " has no ", key));
      return value[key];
    };
    TensorInfo tensor;
    tensor.name = name;
    tensor.type = read_type(name, member("dtype"));
    const json& shape = member("shape");
    if (!shape.is_array()) fail(cat(name, " has shape ", shape.dump(), ", expected a list"));
    std::uint64_t bytes = type_bytes(tensor.type);
    for (const json& extent : shape) {
      const std::uint64_t n = read_unsigned(name, "shape", extent);
      if (__builtin_mul_overflow(bytes, n, &bytes) ||
          bytes > std::numeric_limits<std::int64_t>::max()) {
        fail(cat(name, " has shape ", shape.dump(), ", more than any file can hold"));
      }
      tensor.shape.push_back(static_cast<std::int64_t>(n));
    }
    const json& offsets = member("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) {
      fail(cat(name, " has data_offsets ", offsets.dump(), ", expected [begin, end]"));
    }
    tensor.begin = read_unsigned(name, "data_offsets", offsets[0]);
    tensor.end = read_unsigned(name, "data_offsets", offsets[1]);
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      fail(cat(name,
               ' ',
               tensor.describe(),
               " needs ",
               bytes,
               " bytes but has data_offsets ",
               offsets.dump()));
    }
    if (tensor.end > data_bytes_) {
      fail(cat(name,
               " ends at byte ",
               header_.data_begin + tensor.end,
               " but the file has ",
               file_.size(),
               "; incomplete download?"));
    }
    header_.tensors.push_back(std::move(tensor));
  }

  FileType read_type(const std::string& name, const json& value) const {
    for (const TypeRow& row : kTypes) {
      if (value == row.name) return row.type;
    }
    fail(cat(name, " has dtype ", value.dump(), ", which cannot be read here"));
  }

  std::uint64_t read_unsigned(const std::string& name, const char* key, const json& value) const {
    if (!value.is_number_unsigned()) {
      fail(cat(name, " has ", value.dump(), " in its ", key, ", expected an integer from 0"));
    }
    const auto number = value.get<std::uint64_t>();
    if (number > std::numeric_limits<std::int64_t>::max()) {
      fail(cat(name, " has ", number, " in its ", key, ", more than any file can hold"));
    }
    return number;
  }

  // Every byte of data belongs to exactly one tensor.
  void check_coverage() {
    std::vector<TensorInfo>& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t covered = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].begin < covered) {
        fail(cat(tensors[i].name, " overlaps ", tensors[i - 1].name, " in the data"));
      }
      if (tensors[i].begin > covered) {
        fail(cat("bytes ",
                 covered,
                 " to ",
                 tensors[i].begin,
                 " of the data, before ",
                 tensors[i].name,
                 ", belong to no tensor"));
      }
      covered = tensors[i].end;
    }
    if (covered != data_bytes_) {
      fail(cat("the tensors end at byte ",
               header_.data_begin + covered,
               " but the file has ",
               file_.size()));
    }
  }

  Bytes file_;
  const std::string& where_;
  std::uint64_t data_bytes_ = 0;
  SafetensorsHeader header_;
};

std::uint64_t lay_out(std::vector<TensorInfo>& tensors) {
  std::uint64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.begin = offset;
    offset += static_cast<std::uint64_t>(tensor.elements()) * type_bytes(tensor.type);
    tensor.end = offset;
  }
  return offset;
}

// Length word and JSON, padded so that the data starts at a multiple of 8.
std::string header_bytes(const std::vector<TensorInfo>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json root;
  root[kMetadataKey]["format"] = "pt";
  for (const auto& [key, value] : metadata) root[kMetadataKey][key] = value;
  for (const TensorInfo& tensor : tensors) {
    if (root.contains(tensor.name)) throw std::logic_error("two tensors named " + tensor.name);
    root[tensor.name] = {{"dtype", type_name(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  return length + text;
}

}  // namespace

std::string_view type_name(FileType type) {
  return row_of(type).name;
}

std::size_t type_bytes(FileType type) {
  return row_of(type).bytes;
}

std::int64_t TensorInfo::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string TensorInfo::describe() const {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += cat(i == 0 ? "" : ", ", shape[i]);
  }
  return cat(text, "] ", type_name(type));
}

SafetensorsHeader parse_safetensors(Bytes file, const std::string& where) {
  return HeaderReader(file, where).read();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_safetensors(file_.bytes(), path.string())) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_[header_.tensors[i].name] = i;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors()) names.push_back(tensor.name);
  throw base::DataError(
      cat(path_.string(), ": has no tensor ", name, base::did_you_mean(name, names)));
}

Bytes SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return file_.bytes().subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

SafetensorsWriter::SafetensorsWriter(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     Sink sink)
    : sink_(std::move(sink)) {
  const std::uint64_t data_bytes = lay_out(tensors);
  const std::string header = header_bytes(tensors, metadata);
  file_bytes_ = header.size() + data_bytes;
  append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(Bytes bytes) {
  written_ += bytes.size();
  if (written_ > file_bytes_) throw std::logic_error("more data than the header declares");
  sink_(bytes);
}

void SafetensorsWriter::finish() const {
  if (written_ != file_bytes_) throw std::logic_error("less data than the header declares");
}

std::uint64_t SafetensorsWriter::file_bytes_of(std::vector<TensorInfo> tensors,
                                               const std::map<std::string, std::string>& metadata) {
  const std::uint64_t data_bytes = lay_out(tensors);
  return header_bytes(tensors, metadata).size() + data_bytes;
}

}  // namespace g2::io
