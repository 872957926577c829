#include "train/checkpoint_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/hash.h"
#include "base/text.h"
#include "io/safetensors.h"

namespace g2::train {
namespace {

// Small enough that a piece is still in the cache when it is written after being hashed.
constexpr std::size_t kPieceBytes = 1 << 20;
static_assert(kHashBlockBytes % kPieceBytes == 0);

class BlockHasher {
 public:
  void update(io::Bytes bytes) {
    while (!bytes.empty()) {
      const std::size_t room = static_cast<std::size_t>(kHashBlockBytes) - filled_;
      const io::Bytes part = bytes.first(std::min(room, bytes.size()));
      hasher_.update(part.data(), part.size());
      filled_ += part.size();
      if (filled_ == kHashBlockBytes) close_block();
      bytes = bytes.subspan(part.size());
    }
  }
  std::vector<std::string> finish() {
    if (filled_ > 0) close_block();
    return std::move(hashes_);
  }

 private:
  void close_block() {
    hashes_.push_back(hasher_.hex());
    hasher_.reset();
    filled_ = 0;
  }

  base::Hasher128 hasher_;
  std::size_t filled_ = 0;
  std::vector<std::string> hashes_;
};

std::vector<io::TensorInfo> tensors_of(std::span<const CheckpointRange> ranges) {
  std::vector<io::TensorInfo> tensors;
  for (const CheckpointRange& range : ranges) {
    tensors.push_back({.name = base::cat(range.kind, '/', range.name, '/', range.begin),
                       .type = range.dtype == DType::kF64 ? io::FileType::kF64 : io::FileType::kF32,
                       .shape = {range.count}});
  }
  return tensors;
}

}  // namespace

std::vector<CheckpointRange> flat_ranges(const model::ParameterTable& table,
                                         std::string_view kind,
                                         void* flat_host,
                                         DType dtype) {
  std::vector<CheckpointRange> ranges;
  for (const model::Parameter& parameter : table.parameters()) {
    const std::size_t offset = static_cast<std::size_t>(parameter.offset) * dtype_bytes(dtype);
    ranges.push_back(
        {.kind = std::string(kind),
         .name = parameter.name,
         .begin = 0,
         .count = parameter.count,
         .host = flat_host == nullptr ? nullptr : static_cast<std::byte*>(flat_host) + offset,
         .dtype = dtype});
  }
  return ranges;
}

std::string state_file_name(int rank, int ranks) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "state-%05d-of-%05d.safetensors", rank, ranks);
  return name.data();
}

std::uint64_t state_file_bytes(std::span<const CheckpointRange> ranges) {
  return io::SafetensorsWriter::file_bytes_of(tensors_of(ranges), {});
}

FileRecord write_state_file(base::FileSystem& files,
                            const std::filesystem::path& folder,
                            int rank,
                            int ranks,
                            std::span<const CheckpointRange> ranges) {
  FileRecord record;
  record.name = state_file_name(rank, ranks);
  record.bytes = state_file_bytes(ranges);
  base::OutputFile file(files, folder / record.name, record.bytes);
  BlockHasher hasher;
  io::SafetensorsWriter writer(tensors_of(ranges), {}, [&](io::Bytes bytes) {
    while (!bytes.empty()) {
      const io::Bytes piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      hasher.update(piece);
      file.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  });
  for (const CheckpointRange& range : ranges) {
    const std::size_t bytes = static_cast<std::size_t>(range.count) * dtype_bytes(range.dtype);
    writer.append({static_cast<const std::byte*>(range.host), bytes});
  }
  writer.finish();
  file.finish();
  record.block_hashes = hasher.finish();
  return record;
}

}  // namespace g2::train
