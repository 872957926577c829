#include "config/load.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/checks.h"
#include "config/json_text.h"
#include "config/setting.h"

namespace g2::config {
namespace {

using base::cat;

constexpr std::string_view kSchemaKey = "$schema";  // editors find the JSON Schema through it

[[noreturn]] void refuse_key(const std::string& where, std::string_view full_path) {
  const std::string path = shortened(full_path);
  const std::size_t dot = path.find('.');
  const std::string section = path.substr(0, dot);
  const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
  std::vector<std::string> keys;  // of the section: its name must not make a short key look close
  std::vector<std::string> paths;
  std::string hint;
  for (const Setting& setting : settings()) {
    if (setting.key() == key) hint = setting.path;  // right key, wrong section
    if (setting.section() == section) keys.emplace_back(setting.key());
    paths.emplace_back(setting.path);
  }
  if (hint.empty() && keys.empty()) hint = base::nearest(path, paths);
  if (hint.empty() && !keys.empty()) hint = base::nearest(key, keys);
  if (!hint.empty() && hint.find('.') == std::string::npos) hint = cat(section, ".", hint);
  throw base::UsageError(cat(where,
                             ": no setting ",
                             json_string(path),
                             hint.empty() ? "; see gemma2_train config --help-config"
                                          : cat("; did you mean '", hint, "'?")));
}

[[noreturn]] void refuse_section(const std::string& where, std::string_view full_name) {
  const std::string name = shortened(full_name);
  if (const Setting* setting = find_setting(name)) {
    throw base::UsageError(cat(where,
                               ": settings stand inside their section: \"",
                               setting->section(),
                               "\": {\"",
                               setting->key(),
                               "\": ...}"));
  }
  std::vector<std::string> names;
  for (const Section& section : sections()) names.emplace_back(section.name);
  throw base::UsageError(
      cat(where, ": no section ", json_string(name), base::did_you_mean(name, names)));
}

void read_section(const JsonMember& section, LoadedConfig& loaded) {
  const auto is_this = [&](const Section& known) { return known.name == section.key; };
  if (std::ranges::none_of(sections(), is_this)) {
    refuse_section(place_text(loaded.name, section.place), section.key);
  }
  const auto* members = std::get_if<JsonValue::Object>(&section.value.data);
  if (!members) {
    throw base::UsageError(cat(place_text(loaded.name, section.value.place),
                               ": ",
                               section.key,
                               " is ",
                               section.value.source,
                               ", must be an object with the settings of the section"));
  }
  for (const JsonMember& member : *members) {
    const std::string path = cat(section.key, ".", member.key);
    const Setting* setting = find_setting(path);
    if (!setting) refuse_key(place_text(loaded.name, member.place), path);
    if (const auto found = problem(*setting, member.value)) {
      throw base::UsageError(cat(place_text(loaded.name, found->place), ": ", found->text));
    }
    setting->read(member.value, loaded.config);
    loaded.origins[path] = place_text(loaded.name, member.value.place);
  }
}

void read_document(std::string_view text, LoadedConfig& loaded) {
  const JsonValue document = parse_json(text, loaded.name);
  const auto* members = std::get_if<JsonValue::Object>(&document.data);
  if (!members) {
    throw base::UsageError(cat(place_text(loaded.name, document.place),
                               ": a config must be an object: {\"run\": ...}"));
  }
  for (const JsonMember& member : *members) {
    if (member.key != kSchemaKey) read_section(member, loaded);
  }
}

JsonValue text_value(const std::string& text) {
  return {.data = text, .source = json_string(text), .place = {}};
}

// A shell user writes run.dir=2024 and tokenizer=byte without JSON's quotes.
JsonValue override_value(const Setting& setting, const std::string& text) {
  try {
    JsonValue value = parse_json(text, "");
    const bool is_plain = std::holds_alternative<bool>(value.data) ||
                          std::holds_alternative<std::int64_t>(value.data) ||
                          std::holds_alternative<double>(value.data);
    if (setting.type.kind != ValueKind::kText || !is_plain) return value;
  } catch (const base::UsageError&) {
    return text_value(text);
  }
  return text_value(text);
}

// A message and a comment are one line, whatever the argument holds.
std::string one_line(std::string_view argument) {
  std::string line = base::replace_invalid_utf8(argument);
  for (char& character : line) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7F) character = ' ';
  }
  return line;
}

void apply_override(const std::string& argument, LoadedConfig& loaded) {
  const std::string where = "--set " + shortened(one_line(argument));
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) {
    throw base::UsageError(where + ": expected section.key=value");
  }
  const std::string path = argument.substr(0, equals);
  const Setting* setting = find_setting(path);
  if (!setting) refuse_key(where, one_line(path));
  const JsonValue value = override_value(*setting, argument.substr(equals + 1));
  if (const auto found = problem(*setting, value)) {
    throw base::UsageError(cat(where, ": ", found->text));
  }
  setting->read(value, loaded.config);
  loaded.origins[path] = where;
}

void fill_in(RunConfig& config) {
  ScheduleSettings& schedule = config.schedule;
  if (!config.train.micro_batch) config.train.micro_batch = config.train.global_batch;
  if (!schedule.total_steps) schedule.total_steps = config.train.max_steps;
  if (!schedule.decay_steps && schedule.kind == ScheduleKind::kWsd) {
    schedule.decay_steps = std::max<std::int64_t>(1, *schedule.total_steps / 10);
  }
}

}  // namespace

std::string LoadedConfig::prefix(std::string_view path) const {
  const auto found = origins.find(path);
  return (found == origins.end() ? name : found->second) + ": ";
}

LoadedConfig parse_config(std::string_view text,
                          const std::string& name,
                          const std::vector<std::string>& overrides) {
  LoadedConfig loaded{.config = {}, .name = name, .origins = {}};
  read_document(text, loaded);
  for (const std::string& override_text : overrides) apply_override(override_text, loaded);
  fill_in(loaded.config);
  if (const auto conflict = first_conflict(loaded.config)) {
    const bool blame_other = !loaded.origins.contains(conflict->path);
    throw base::UsageError(loaded.prefix(blame_other ? conflict->other : conflict->path) +
                           conflict->text);
  }
  return loaded;
}

LoadedConfig load_config(const std::filesystem::path& file,
                         const std::vector<std::string>& overrides) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw base::UsageError(cat(file.string(), ": no such config file"));
  }
  return parse_config(base::read_file(file), file.string(), overrides);
}

void require_model(const LoadedConfig& loaded) {
  const std::string missing = missing_for_model(loaded.config);
  if (!missing.empty()) throw base::UsageError(cat(loaded.name, ": ", missing));
}

void require_training(const LoadedConfig& loaded) {
  const std::string missing = missing_for_training(loaded.config);
  if (!missing.empty()) throw base::UsageError(cat(loaded.name, ": ", missing));
}

}  // namespace g2::config
