// From a JSON file and --set arguments to a RunConfig, every value checked and its origin kept.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace g2::config {

struct LoadedConfig {
  RunConfig config;
  std::string name;  // the file, for messages
  // "FILE:LINE:COLUMN" or "--set PATH=VALUE" of each setting that was given.
  std::map<std::string, std::string, std::less<>> origins;

  // How a message about the setting opens: its origin, or the file when it was not given; with
  // ": ".
  std::string prefix(std::string_view path) const;
};

// Each override is "section.key=value": the value as JSON, or, where it is not JSON, a text as it
// stands; null takes a value back. Later ones win. Values that depend on others are filled in
// (train.micro_batch, schedule.total_steps, schedule.decay_steps), so that the effective config
// holds them. Throws UsageError "FILE:LINE:COLUMN: ..." or "--set PATH=VALUE: ..." for broken JSON,
// unknown or repeated keys, wrong types, values out of range and settings that contradict one
// another.
LoadedConfig parse_config(std::string_view text,
                          const std::string& name,
                          const std::vector<std::string>& overrides = {});

// The same for a file. A file that is not there is a UsageError too.
LoadedConfig load_config(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides = {});

// Throw UsageError naming what a command that needs the model, or trains it, must be told.
void require_model(const LoadedConfig& loaded);
void require_training(const LoadedConfig& loaded);

}  // namespace g2::config
