// A RunConfig written back as the JSON that gives it: to keep, to compare, to show.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/load.h"

namespace g2::config {

// Every setting that has a value, in the order of the settings table. parse_config() gives the same
// RunConfig back.
std::string effective_json(const RunConfig& config);

// The same with a comment behind each value: where it comes from.
std::string annotated_json(const LoadedConfig& loaded);

// 16 hexadecimal digits over all that can change a result: not run.dir, log and device.
std::string config_hash(const RunConfig& config);

struct Difference {
  std::string path;
  std::string before, after;  // as JSON; "not given" without a value
};

// The settings with unlike values, in the order of the table. For a resume.
std::vector<Difference> differences(const RunConfig& before, const RunConfig& after);

}  // namespace g2::config
