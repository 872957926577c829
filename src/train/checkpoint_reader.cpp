#include "train/checkpoint_reader.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

namespace g2::train {
namespace {

using base::cat;

constexpr std::size_t kReadElements = 1 << 22;

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / "manifest.json";
  Manifest manifest = parse_manifest(base::read_file(path), path.string());
  for (const FileRecord& file : manifest.files) {
    if (file.name.empty() || file.name != std::filesystem::path(file.name).filename()) {
      throw base::DataError(cat(path.string(), ": names the file '", file.name, "'"));
    }
  }
  return manifest;
}

std::optional<std::string> file_damage(const std::filesystem::path& path,
                                       const FileRecord& record) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return cat(path.string(), ": ", error.message());
  if (bytes != record.bytes) {
    return cat(path.string(), ": has ", bytes, " bytes, expected ", record.bytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(static_cast<std::size_t>(std::min(bytes, kHashBlockBytes)));
  std::uint64_t offset = 0;
  for (const std::string& expected : record.block_hashes) {
    const std::uint64_t size = std::min(kHashBlockBytes, bytes - offset);
    file.read(block.data(), static_cast<std::streamsize>(size));
    const auto got = static_cast<std::uint64_t>(file.gcount());
    if (got != size) return cat(path.string(), ": cannot read byte ", offset + got);
    if (base::hash128_hex(block.data(), size) != expected) {
      return cat(path.string(), ": bytes ", offset, " to ", offset + size, " are damaged");
    }
    offset += size;
  }
  if (offset != bytes) return cat(path.string(), ": the manifest has no hash from byte ", offset);
  return std::nullopt;
}

std::int64_t elements_of(const TensorShape& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  return count;
}

}  // namespace

std::optional<std::string> find_damage(const std::filesystem::path& checkpoint) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    for (const FileRecord& file : manifest.files) {
      if (auto damage = file_damage(checkpoint / file.name, file)) return damage;
    }
    const Checkpoint opens(checkpoint);
    return std::nullopt;
  } catch (const base::Error& e) {
    return e.what();
  }
}

Checkpoint::Checkpoint(const std::filesystem::path& folder)
    : folder_(folder), manifest_(read_manifest(folder)) {
  for (const FileRecord& file : manifest_.files) {
    files_.push_back(std::make_unique<io::SafetensorsFile>(folder / file.name));
    for (const io::TensorInfo& tensor : files_.back()->tensors()) add_piece(*files_.back(), tensor);
  }
  check_pieces();
}

// Tensor "kind/name/begin", 1-D.
void Checkpoint::add_piece(const io::SafetensorsFile& file, const io::TensorInfo& tensor) {
  const std::size_t slash = tensor.name.rfind('/');
  const char* const end = tensor.name.data() + tensor.name.size();
  std::int64_t begin = -1;
  if (slash != std::string::npos) {
    const auto parsed = std::from_chars(tensor.name.data() + slash + 1, end, begin);
    if (parsed.ec != std::errc() || parsed.ptr != end) begin = -1;
  }
  if (begin < 0 || tensor.shape.size() != 1) {
    throw base::DataError(cat(file.path().string(), ": ", tensor.name, " is no piece of a tensor"));
  }
  Pieces& pieces = pieces_[tensor.name.substr(0, slash)];
  if (!pieces.emplace(begin, Piece{tensor.shape[0], &file, &tensor}).second) {
    throw base::DataError(cat(file.path().string(), ": ", tensor.name, " is in another file, too"));
  }
}

// Every kind of every tensor of the manifest is there exactly once.
void Checkpoint::check_pieces() const {
  for (const std::string& kind : manifest_.kinds) {
    for (const TensorShape& tensor : manifest_.tensors) {
      const auto found = pieces_.find(cat(kind, '/', tensor.name));
      std::int64_t covered = 0;
      if (found != pieces_.end()) {
        for (const auto& [begin, piece] : found->second) {
          if (begin != covered) break;
          covered += piece.count;
        }
      }
      if (covered != elements_of(tensor)) {
        throw base::DataError(cat(folder_.string(),
                                  ": ",
                                  kind,
                                  '/',
                                  tensor.name,
                                  " has ",
                                  elements_of(tensor),
                                  " elements, but the pieces end at ",
                                  covered));
      }
    }
  }
}

template <typename T>
void Checkpoint::read_pieces(std::string_view kind,
                             std::string_view name,
                             std::int64_t begin,
                             std::span<T> out) const {
  const auto found = pieces_.find(cat(kind, '/', name));
  if (found == pieces_.end()) {
    throw base::DataError(cat(folder_.string(), ": has no ", kind, '/', name));
  }
  auto piece = found->second.upper_bound(begin);
  while (!out.empty()) {
    if (piece != found->second.begin()) --piece;
    const std::int64_t skip = begin - piece->first;
    const std::int64_t left = piece->second.count - skip;
    if (skip < 0 || left <= 0) {
      throw base::DataError(
          cat(folder_.string(), ": ", kind, '/', name, " has no element ", begin));
    }
    const std::size_t size = std::min({out.size(), static_cast<std::size_t>(left), kReadElements});
    const io::TensorInfo& tensor = *piece->second.tensor;
    const std::size_t width = io::type_bytes(tensor.type);
    const io::Bytes bytes = piece->second.file->bytes(tensor).subspan(
        static_cast<std::size_t>(skip) * width, size * width);
    io::decode(tensor.type, bytes, out.first(size));
    base::MappedFile::release(bytes);  // else file and copy would both be resident
    begin += static_cast<std::int64_t>(size);
    out = out.subspan(size);
    piece = found->second.upper_bound(begin);
  }
}

void Checkpoint::read(std::string_view kind,
                      std::string_view name,
                      std::int64_t begin,
                      std::span<float> out) const {
  read_pieces(kind, name, begin, out);
}

void Checkpoint::read(std::string_view kind,
                      std::string_view name,
                      std::int64_t begin,
                      std::span<double> out) const {
  read_pieces(kind, name, begin, out);
}

void Checkpoint::read_into(std::span<const CheckpointRange> ranges) const {
  for (const CheckpointRange& range : ranges) {
    const auto count = static_cast<std::size_t>(range.count);
    if (range.dtype == DType::kF64) {
      read(range.kind, range.name, range.begin, std::span(static_cast<double*>(range.host), count));
    } else {
      read(range.kind, range.name, range.begin, std::span(static_cast<float*>(range.host), count));
    }
  }
}

}  // namespace g2::train
