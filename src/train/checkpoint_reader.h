// Reading a checkpoint: is it whole, and any range of any tensor, however the ranks had cut it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "train/checkpoint_manifest.h"
#include "train/checkpoint_writer.h"

namespace g2::train {

// Reads every byte of a checkpoint. Nothing when all sizes and hashes are right, else one line that
// names the file and, where known, the range of bytes.
std::optional<std::string> find_damage(const std::filesystem::path& checkpoint);

class Checkpoint {
 public:
  // Opens the files that the manifest names, of one rank or many. Hashes are not checked: that is
  // find_damage. Throws IoError or DataError when files are missing or do not fit the manifest, or
  // the ranges of a tensor leave a gap or overlap.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointInfo& info() const { return manifest_.info; }

  // Elements [begin, begin + out.size()) of a tensor, f64 rounded to float where it is stored so.
  // Throws DataError when the checkpoint has no such tensor or kind, or it is smaller.
  void read(std::string_view kind,
            std::string_view name,
            std::int64_t begin,
            std::span<float> out) const;
  void read(std::string_view kind,
            std::string_view name,
            std::int64_t begin,
            std::span<double> out) const;

  // Fills every range's host memory; the ranges need not be those that were written.
  void read_into(std::span<const CheckpointRange> ranges) const;

 private:
  struct Piece {
    std::int64_t count = 0;
    const io::SafetensorsFile* file = nullptr;
    const io::TensorInfo* tensor = nullptr;
  };
  using Pieces = std::map<std::int64_t, Piece>;  // by first element

  void add_piece(const io::SafetensorsFile& file, const io::TensorInfo& tensor);
  void check_pieces() const;
  template <typename T>
  void read_pieces(std::string_view kind,
                   std::string_view name,
                   std::int64_t begin,
                   std::span<T> out) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<io::SafetensorsFile>> files_;
  std::map<std::string, Pieces, std::less<>> pieces_;  // by "kind/name"
};

}  // namespace g2::train
