// The checkpoints of one run folder: written, found, kept or removed.
//
//   <run>/checkpoints/step_00001000/   whole, or damaged later: a name without suffix was complete
//   <run>/checkpoints/*.tmp-*          being written, or left by a killed process: never trusted
//   <run>/checkpoints/.trash-*         being removed
//   <run>/checkpoints/abandoned-*/     newer than the checkpoint that a run went back to
//
// Order of a save: files written and synced, manifest last, folder synced, renamed, parent synced,
// and only then older ones removed. Whatever operation is the last before a crash, a usable
// checkpoint remains (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/file_system.h"
#include "model/parameter_table.h"
#include "train/checkpoint_manifest.h"
#include "train/checkpoint_writer.h"
#include "train/run_lock.h"

namespace g2::train {

struct RetentionPolicy {
  std::int64_t keep_last = 2;   // newest ones; at least 1
  std::int64_t keep_every = 0;  // also those at multiples of this many steps; 0: none
  bool keep_best = true;        // also the one at the step of the best validation loss
};

// Which of `steps` may go once `newest`, one of them, is durable. Steps above `newest` are never
// named: whether they belong to this run is not known.
std::vector<std::int64_t> removable_steps(std::vector<std::int64_t> steps,
                                          std::int64_t newest,
                                          const RetentionPolicy& policy,
                                          std::optional<std::int64_t> best);

// All of a run folder, oldest first, damaged ones too.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run_folder);

// The newest checkpoint of a run folder with nothing damaged in it. Damaged ones are named in the
// log and passed over. Nothing when there is none at all; IoError when all that are there are
// damaged: a run must not start again in silence.
std::optional<std::filesystem::path> find_latest_valid(const std::filesystem::path& run_folder);

// `path` is a checkpoint, or a run folder whose newest valid one is meant. Throws IoError when it
// is damaged, or when there is none.
std::filesystem::path require_checkpoint(const std::filesystem::path& path);

class CheckpointStore {
 public:
  // Removes what killed processes left behind, which only the holder of the lock may do.
  CheckpointStore(base::FileSystem& files, const RunLock& lock, const RetentionPolicy& policy);

  // Throws IoError when the disk has no room for the checkpoints that the policy keeps and one
  // more, each of these ranges; for the start of a run.
  void check_space(std::span<const CheckpointRange> ranges) const;

  // Writes one checkpoint, durable on return, then removes what the policy lets go. The ranges
  // cover every parameter once a kind. A valid checkpoint of the same run, step and config is left
  // as it is; another one under that name is moved aside.
  // Throws IoError naming the bytes needed and free; nothing of this checkpoint is left and older
  // ones are untouched then. Throws FolderError when the run folder has a new owner.
  void save(const CheckpointInfo& info,
            const model::ParameterTable& table,
            std::span<const CheckpointRange> ranges);

  // Call when a run goes on from `checkpoint`: checkpoints of this folder that are newer, or all
  // when it comes from elsewhere, move to "abandoned-<time>/", so that no later start takes the
  // other branch.
  void adopt(const std::filesystem::path& checkpoint);

 private:
  void remove_leftovers();
  bool is_saved(const std::filesystem::path& path, const Manifest& manifest) const;
  void write(const std::filesystem::path& temporary,
             Manifest& manifest,
             std::span<const CheckpointRange> ranges);
  void publish(const std::filesystem::path& temporary, const std::filesystem::path& path);
  void set_aside(const std::filesystem::path& path, const std::filesystem::path& folder);
  void remove_old(const CheckpointInfo& info);
  void discard(const std::filesystem::path& path) noexcept;

  base::FileSystem& files_;
  const RunLock& lock_;
  RetentionPolicy policy_;
  std::filesystem::path folder_;  // <run>/checkpoints
};

}  // namespace g2::train
