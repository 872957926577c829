#include "config/effective.h"

#include "base/hash.h"
#include "base/text.h"
#include "config/setting.h"

namespace g2::config {
namespace {

using base::cat;

// note(setting) is what follows the value on its line.
template <typename Note>
std::string to_json(const RunConfig& config, Note note) {
  std::string text = "{";
  std::string line_end;  // of the setting before, which needs a comma when another follows
  std::string_view open_section;
  for (const Setting& setting : settings()) {
    const auto value = setting.write(config);
    if (!value) continue;
    if (setting.section() != open_section) {
      text += open_section.empty() ? "\n" : line_end + "\n  },\n";
      text += cat("  ", json_string(setting.section()), ": {\n");
      open_section = setting.section();
    } else {
      text += "," + line_end + "\n";
    }
    text += cat("    ", json_string(setting.key()), ": ", *value);
    line_end = note(setting);
  }
  return text + line_end + "\n  }\n}\n";
}

bool changes_results(const Setting& setting) {
  return setting.path != "run.dir" && setting.section() != "log" && setting.section() != "device";
}

}  // namespace

std::string effective_json(const RunConfig& config) {
  return to_json(config, [](const Setting& /*setting*/) { return std::string(); });
}

std::string annotated_json(const LoadedConfig& loaded) {
  return to_json(loaded.config, [&](const Setting& setting) {
    const auto origin = loaded.origins.find(setting.path);
    if (origin != loaded.origins.end()) return "  // " + origin->second;
    if (setting.if_absent.empty()) return std::string("  // default");
    return cat("  // default: ", setting.if_absent);
  });
}

std::string config_hash(const RunConfig& config) {
  std::string text;
  for (const Setting& setting : settings()) {
    const auto value = setting.write(config);
    if (value && changes_results(setting)) text += cat(setting.path, "=", *value, "\n");
  }
  return base::hex64(base::hash64(text));
}

std::vector<Difference> differences(const RunConfig& before, const RunConfig& after) {
  std::vector<Difference> found;
  for (const Setting& setting : settings()) {
    const auto old_value = setting.write(before);
    const auto new_value = setting.write(after);
    if (old_value == new_value) continue;
    found.push_back({std::string(setting.path),
                     old_value.value_or("not given"),
                     new_value.value_or("not given")});
  }
  return found;
}

}  // namespace g2::config
