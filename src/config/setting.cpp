#include "config/setting.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "base/utf8.h"

namespace g2::config {
namespace {

using base::cat;

constexpr double kMaxExactWhole = 0x1p53;  // beyond, a double no longer names one whole number

std::string range_words(const Range& range) {
  const bool bounded = std::isfinite(range.low) && std::isfinite(range.high);
  if (bounded && !range.low_excluded && !range.high_excluded) {
    return cat("from ", base::number_text(range.low), " to ", base::number_text(range.high));
  }
  std::string words;
  if (std::isfinite(range.low)) {
    words = cat(range.low_excluded ? "> " : ">= ", base::number_text(range.low));
  }
  if (std::isfinite(range.high)) {
    words += cat(words.empty() ? "" : " and ",
                 range.high_excluded ? "< " : "<= ",
                 base::number_text(range.high));
  }
  return words;
}

std::string choice_words(const Setting& setting) {
  std::string words = setting.choices.size() == 1 ? "" : "one of ";
  for (const std::string_view choice : setting.choices) {
    words += cat(choice == setting.choices.front() ? "" : ", ", choice);
  }
  return words;
}

// One value, without what list and null allow.
std::string scalar_words(const Setting& setting, ValueKind kind) {
  const std::string range = range_words(setting.range);
  const std::string suffix = range.empty() ? "" : " " + range;
  switch (kind) {
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kInteger:
      return "a whole number" + suffix;
    case ValueKind::kNumber:
      return "a number" + suffix;
    case ValueKind::kText:
      return setting.choices.empty() ? "a text" : choice_words(setting);
    case ValueKind::kFractionOrPaths:
      return "a number" + suffix + ", a path, or a list of paths";
  }
  return "";
}

bool has_kind(ValueKind kind, const JsonValue& value) {
  switch (kind) {
    case ValueKind::kBool:
      return std::holds_alternative<bool>(value.data);
    case ValueKind::kInteger: {
      const auto* real = std::get_if<double>(&value.data);
      if (real) return std::trunc(*real) == *real && std::abs(*real) <= kMaxExactWhole;
      return std::holds_alternative<std::int64_t>(value.data);
    }
    case ValueKind::kNumber:
      return std::holds_alternative<double>(value.data) ||
             std::holds_alternative<std::int64_t>(value.data);
    case ValueKind::kText:
      return std::holds_alternative<std::string>(value.data);
    case ValueKind::kFractionOrPaths:
      return has_kind(ValueKind::kNumber, value) || has_kind(ValueKind::kText, value);
  }
  return false;
}

bool in_range(const Range& range, const JsonValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value.data);
  const double number = whole ? static_cast<double>(*whole) : std::get<double>(value.data);
  return (range.low_excluded ? number > range.low : number >= range.low) &&
         (range.high_excluded ? number < range.high : number <= range.high);
}

// What is wrong with a text, as "must ..." words; "" when nothing is.
std::string text_fault(const Setting& setting, const std::string& text) {
  if (!setting.choices.empty()) {
    if (std::ranges::find(setting.choices, text) != setting.choices.end()) return "";
    const std::vector<std::string> choices(setting.choices.begin(), setting.choices.end());
    return "must be " + choice_words(setting) + base::did_you_mean(text, choices);
  }
  if (text.empty()) return "must not be empty";
  if (base::first_invalid_utf8(text)) return "must be UTF-8";
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7F; };
  return std::ranges::any_of(text, is_control) ? "must not hold control characters" : "";
}

std::optional<Problem> scalar_problem(const Setting& setting,
                                      const JsonValue& value,
                                      const std::string& label) {
  std::string fault;
  if (!has_kind(setting.type.kind, value)) {
    fault = "must be " + scalar_words(setting, setting.type.kind);
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    fault = text_fault(setting, *text);
  } else if (!std::holds_alternative<bool>(value.data) && !in_range(setting.range, value)) {
    fault = "must be " + range_words(setting.range);
  }
  if (fault.empty()) return std::nullopt;
  return Problem{value.place, cat(label, " is ", shortened(value.source), ", ", fault)};
}

}  // namespace

std::string expectation(const Setting& setting) {
  std::string words = scalar_words(setting, setting.type.kind);
  if (setting.type.list) words += ", or a list of them";
  if (setting.type.null_value) words += ", or null";
  return words;
}

std::optional<Problem> problem(const Setting& setting, const JsonValue& value) {
  const std::string path(setting.path);
  if (setting.type.null && std::holds_alternative<std::nullptr_t>(value.data)) return std::nullopt;
  const bool paths = setting.type.kind == ValueKind::kFractionOrPaths;
  const auto* list = std::get_if<JsonValue::List>(&value.data);
  if (!list || !(setting.type.list || paths)) {
    if (has_kind(setting.type.kind, value)) return scalar_problem(setting, value, path);
    return Problem{value.place,
                   cat(path, " is ", shortened(value.source), ", must be ", expectation(setting))};
  }
  if (list->empty()) return Problem{value.place, path + " is an empty list"};
  Setting item = setting;
  if (paths) item.type.kind = ValueKind::kText;
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (auto found = scalar_problem(item, (*list)[i], cat(path, "[", i, "]"))) return found;
  }
  return std::nullopt;
}

}  // namespace g2::config
