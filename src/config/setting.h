// What the settings table says of one setting, and what follows from it.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"
#include "config/json_text.h"

namespace g2::config {

enum class ValueKind { kBool, kInteger, kNumber, kText, kFractionOrPaths };

struct ValueType {
  ValueKind kind;
  bool list = false;        // a list, or one value for a list of one
  bool null = false;        // null is accepted
  bool null_value = false;  // and means something else than "not given"
};

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  bool high_excluded = false;
};

struct Setting {
  std::string_view path;  // "section.key"
  ValueType type;
  Range range;                                // of a number, or of each in the list
  std::span<const std::string_view> choices;  // of a text, or of each in the list; empty: any
  std::string_view if_absent;  // what a setting without a value means; "": always has one
  std::string_view help;
  void (*read)(const JsonValue& value, RunConfig& config);  // requires !problem(setting, value)
  std::optional<std::string> (*write)(const RunConfig& config);  // as JSON; nothing: not given

  std::string_view section() const { return path.substr(0, path.find('.')); }
  std::string_view key() const { return path.substr(path.find('.') + 1); }
};

struct Section {
  std::string_view name;
  std::string_view help;
};

// The settings table, and its sections, in the order of the documentation.
std::span<const Setting> settings();
std::span<const Section> sections();

const Setting* find_setting(std::string_view path);

struct Problem {
  Place place;
  std::string text;  // "optimizer.learning_rate is -1e-5, must be > 0"
};

// What is wrong with giving `value` to the setting: its type, range or choices.
std::optional<Problem> problem(const Setting& setting, const JsonValue& value);

// "a number > 0", "one of fp32, bf16, fp64".
std::string expectation(const Setting& setting);

}  // namespace g2::config
