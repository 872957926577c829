#include "train/checkpoint_store.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/checkpoint_reader.h"

namespace g2::train {
namespace {

using base::cat;
using std::filesystem::path;

constexpr std::string_view kPrefix = "step_";

std::string step_name(std::int64_t step) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step_%08lld", static_cast<long long>(step));
  return name.data();
}

// The step of a name that step_name makes, else nothing.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> names_in(const path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw base::IoError(cat(folder.string(), ": cannot list: ", error.message()));
  }
  return names;
}

// Ascending.
std::vector<std::int64_t> steps_in(const path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

path checkpoints_of(const path& run_folder) {
  return run_folder / "checkpoints";
}

// A name inside `folder` that is not there yet.
path new_name(const path& folder, const std::string& prefix) {
  return folder / cat(prefix,
                      base::utc_time_text(base::TimeStyle::kCompact),
                      '-',
                      base::unique_suffix().substr(0, 4));
}

std::optional<Manifest> manifest_of(const path& checkpoint) {
  try {
    const path file = checkpoint / "manifest.json";
    return parse_manifest(base::read_file(file), file.string());
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

std::uint64_t checkpoint_bytes(std::span<const CheckpointRange> ranges) {
  constexpr std::uint64_t kManifestRoom = 1 << 20;
  const std::uint64_t state = state_file_bytes(ranges);
  return state + state / 1000 + kManifestRoom;
}

std::uint64_t free_or_zero(base::FileSystem& files, const path& folder) {
  try {
    return files.free_bytes(folder);
  } catch (const base::IoError&) {
    return 0;
  }
}

std::string space_text(std::uint64_t needed, std::uint64_t available) {
  return cat("needs ",
             base::bytes_text(static_cast<double>(needed)),
             ", ",
             base::bytes_text(static_cast<double>(available)),
             " are free");
}

}  // namespace

std::vector<std::int64_t> removable_steps(std::vector<std::int64_t> steps,
                                          std::int64_t newest,
                                          const RetentionPolicy& policy,
                                          std::optional<std::int64_t> best) {
  std::erase_if(steps, [newest](std::int64_t step) { return step > newest; });
  std::sort(steps.begin(), steps.end());
  const auto last = static_cast<std::size_t>(std::max<std::int64_t>(1, policy.keep_last));
  steps.resize(steps.size() - std::min(steps.size(), last));
  std::erase_if(steps, [&](std::int64_t step) {
    const bool is_kept_one = policy.keep_every > 0 && step % policy.keep_every == 0;
    return is_kept_one || (policy.keep_best && step == best);
  });
  return steps;
}

std::vector<path> list_checkpoints(const path& run_folder) {
  const path folder = checkpoints_of(run_folder);
  std::vector<path> checkpoints;
  for (const std::int64_t step : steps_in(folder)) checkpoints.push_back(folder / step_name(step));
  return checkpoints;
}

std::optional<path> find_latest_valid(const path& run_folder) {
  const std::vector<path> checkpoints = list_checkpoints(run_folder);
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    const std::optional<std::string> damage = find_damage(*checkpoint);
    if (!damage) return *checkpoint;
    base::log_warning(cat(*damage, "; the checkpoint before it is tried"));
  }
  if (checkpoints.empty()) return std::nullopt;
  throw base::IoError(cat(run_folder.string(),
                          ": all ",
                          checkpoints.size(),
                          " checkpoints are damaged; restore one, or start afresh in another "
                          "run.dir"));
}

path require_checkpoint(const path& given) {
  if (!std::filesystem::exists(given)) throw base::IoError(cat(given.string(), ": is not there"));
  if (std::filesystem::exists(given / "manifest.json") || step_of(given.filename().string())) {
    if (const auto damage = find_damage(given)) throw base::IoError(*damage);
    return given;
  }
  if (const auto found = find_latest_valid(given)) return *found;
  throw base::IoError(
      cat(given.string(), ": is no checkpoint (manifest.json) and no run folder with one"));
}

CheckpointStore::CheckpointStore(base::FileSystem& files,
                                 const RunLock& lock,
                                 const RetentionPolicy& policy)
    : files_(files), lock_(lock), policy_(policy), folder_(checkpoints_of(lock.run_folder())) {
  if (!std::filesystem::exists(folder_)) {
    files_.create_folder(folder_);
    files_.sync_folder(lock.run_folder());
  }
  remove_leftovers();
}

void CheckpointStore::remove_leftovers() {
  for (const std::string& name : names_in(folder_)) {
    if (name.starts_with(".trash-") || name.find(".tmp-") != std::string::npos) {
      discard(folder_ / name);
    }
  }
}

void CheckpointStore::check_space(std::span<const CheckpointRange> ranges) const {
  const auto wanted = static_cast<std::uint64_t>(std::max<std::int64_t>(1, policy_.keep_last)) + 1;
  const std::uint64_t there = steps_in(folder_).size();
  const std::uint64_t more = wanted > there ? wanted - there : 1;
  const std::uint64_t needed = more * checkpoint_bytes(ranges);
  const std::uint64_t available = files_.free_bytes(folder_);
  if (available >= needed) return;
  throw base::IoError(cat(folder_.string(),
                          ": keep_last ",
                          policy_.keep_last,
                          " and one being ",
                          "written: ",
                          more,
                          " more checkpoints, ",
                          space_text(needed, available),
                          "; free some, or lower checkpoint.keep_last"));
}

void CheckpointStore::save(const CheckpointInfo& info,
                           const model::ParameterTable& table,
                           std::span<const CheckpointRange> ranges) {
  Manifest manifest;
  manifest.info = info;
  for (const model::Parameter& parameter : table.parameters()) {
    manifest.tensors.push_back({parameter.name, parameter.shape});
  }
  for (const CheckpointRange& range : ranges) {
    if (std::count(manifest.kinds.begin(), manifest.kinds.end(), range.kind) == 0) {
      manifest.kinds.push_back(range.kind);
    }
  }
  const path target = folder_ / step_name(info.step);
  if (is_saved(target, manifest)) return;
  const path temporary = target.string() + ".tmp-" + base::unique_suffix();
  const std::uint64_t needed = checkpoint_bytes(ranges);
  try {
    if (files_.free_bytes(folder_) < needed) throw base::IoError("the disk is full");
    write(temporary, manifest, ranges);
    publish(temporary, target);
  } catch (const base::IoError& e) {
    discard(temporary);
    throw base::IoError(cat(target.string(),
                            ": not saved: ",
                            e.what(),
                            "; it ",
                            space_text(needed, free_or_zero(files_, folder_)),
                            "; older checkpoints are untouched"));
  } catch (...) {
    discard(temporary);
    throw;
  }
  remove_old(info);
}

bool CheckpointStore::is_saved(const path& target, const Manifest& manifest) const {
  const std::optional<Manifest> there = manifest_of(target);
  return there && there->info.run_id == manifest.info.run_id &&
         there->info.config_hash == manifest.info.config_hash && !find_damage(target);
}

void CheckpointStore::write(const path& temporary,
                            Manifest& manifest,
                            std::span<const CheckpointRange> ranges) {
  files_.create_folder(temporary);
  manifest.files = {write_state_file(files_, temporary, 0, 1, ranges)};
  base::write_new_file(files_, temporary / "manifest.json", to_json(manifest));
  files_.sync_folder(temporary);
}

void CheckpointStore::publish(const path& temporary, const path& target) {
  lock_.check_still_owner();
  if (std::filesystem::exists(target)) set_aside(target, new_name(folder_, "bad-"));
  files_.rename(temporary, target);
  files_.sync_folder(folder_);
}

void CheckpointStore::set_aside(const path& checkpoint, const path& folder) {
  if (!std::filesystem::exists(folder)) files_.create_folder(folder);
  files_.rename(checkpoint, folder / checkpoint.filename());
  files_.sync_folder(folder);
}

// Runs after the new checkpoint is durable: a failure here costs disk space, not data.
void CheckpointStore::remove_old(const CheckpointInfo& info) {
  std::vector<std::int64_t> ours;
  for (const std::int64_t step : steps_in(folder_)) {
    const std::optional<Manifest> manifest = manifest_of(folder_ / step_name(step));
    if (manifest && manifest->info.run_id == info.run_id) ours.push_back(step);
  }
  std::optional<std::int64_t> best;
  if (info.best) best = info.best->step;
  for (const std::int64_t step : removable_steps(ours, info.step, policy_, best)) {
    const path trash = folder_ / cat(".trash-", step_name(step), '-', base::unique_suffix());
    try {
      files_.rename(folder_ / step_name(step), trash);
    } catch (const base::IoError& e) {
      base::log_warning(e.what());
      continue;
    }
    discard(trash);
  }
}

void CheckpointStore::adopt(const path& checkpoint) {
  std::error_code error;
  const bool is_ours = std::filesystem::equivalent(checkpoint.parent_path(), folder_, error);
  const std::int64_t base_step =
      is_ours ? step_of(checkpoint.filename().string()).value_or(-1) : -1;
  path abandoned;
  for (const std::int64_t step : steps_in(folder_)) {
    if (step <= base_step) continue;
    if (abandoned.empty()) abandoned = new_name(folder_, "abandoned-");
    set_aside(folder_ / step_name(step), abandoned);
    base::log_info(cat(step_name(step),
                       " is newer than the checkpoint resumed from; moved to ",
                       abandoned.string()));
  }
  if (!abandoned.empty()) files_.sync_folder(folder_);
}

void CheckpointStore::discard(const path& folder) noexcept {
  try {
    if (std::filesystem::exists(folder)) base::remove_tree(files_, folder);
  } catch (const std::exception& e) {
    base::log_warning(cat("left behind: ", e.what()));
  }
}

}  // namespace g2::train
