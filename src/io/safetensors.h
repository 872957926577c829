// The safetensors container: a JSON header that names tensors, then their bytes.
//
//   u64 little-endian N | N bytes of JSON | data
//   JSON: {"__metadata__": {"format": "pt"}, NAME: {"dtype": "F32", "shape": [2, 3],
//          "data_offsets": [begin, end]}, ...}       offsets count from the start of the data
//
// The reader believes nothing: sizes, names, shapes and ranges are checked against each other and
// against the file before a byte of data is used. Errors are DataError "path: tensor: what".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace g2::io {

using Bytes = std::span<const std::byte>;

enum class FileType : std::uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI16, kI8, kU8, kBool };

std::string_view type_name(FileType type);  // as in the header: "BF16"
std::size_t type_bytes(FileType type);

struct TensorInfo {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the data section
  std::uint64_t end = 0;

  std::int64_t elements() const;
  std::string describe() const;  // "[256000, 2304] BF16"
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // in the file
};

// Checks and reads the header of a whole file in memory; `where` names it in messages.
SafetensorsHeader parse_safetensors(Bytes file, const std::string& where);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const TensorInfo* find(std::string_view name) const;  // null: not there
  const TensorInfo& at(std::string_view name) const;    // throws, naming the nearest one

  // The tensor's mapped bytes, of any alignment. Valid as long as this object.
  Bytes bytes(const TensorInfo& tensor) const;

 private:
  std::filesystem::path path_;
  base::MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// Little-endian elements of a floating type to float or double: exact where the target can hold
// them, else rounded to nearest even. Requires bytes.size() == out.size() * type_bytes(type).
// Throws DataError for a type that is not floating.
void decode(FileType type, Bytes bytes, std::span<float> out);
void decode(FileType type, Bytes bytes, std::span<double> out);

// Writes a file front to back into `sink`, so that memory does not grow with the tensors. The
// caller opens, syncs and closes.
class SafetensorsWriter {
 public:
  using Sink = std::function<void(Bytes)>;

  // `tensors`: name, type and shape, in the order their data will come; begin and end are filled
  // in. "format": "pt", without which older transformers refuse the file, is always written.
  // Requires distinct names. Writes the header at once.
  SafetensorsWriter(std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata,
                    Sink sink);

  std::uint64_t file_bytes() const { return file_bytes_; }
  void append(Bytes bytes);  // the next bytes of data, cut anywhere
  void finish() const;       // throws std::logic_error unless all data has come

  // Bytes of the file that these tensors make, without writing it.
  static std::uint64_t file_bytes_of(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata);

 private:
  Sink sink_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace g2::io
