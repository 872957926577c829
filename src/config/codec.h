// How each C++ type of a setting is read from JSON and written to it. For settings.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "config/setting.h"

namespace g2::config {

// The spellings of an enum's values, in their order.
template <typename E>
struct Names;

// Codec<T>: the JSON type; read(), of a value of that type; write(), nothing when not given.
template <typename T>
struct Codec {
  static_assert(std::is_enum_v<T>);
  static constexpr ValueType kType = {ValueKind::kText};
  static T read(const JsonValue& value) {
    const auto& names = Names<T>::kNames;
    const auto found = std::find(names.begin(), names.end(), std::get<std::string>(value.data));
    return static_cast<T>(found - names.begin());
  }
  static std::optional<std::string> write(T value) {
    return json_string(Names<T>::kNames[static_cast<std::size_t>(value)]);
  }
};

template <>
struct Codec<bool> {
  static constexpr ValueType kType = {ValueKind::kBool};
  static bool read(const JsonValue& value) { return std::get<bool>(value.data); }
  static std::optional<std::string> write(bool value) { return value ? "true" : "false"; }
};

template <>
struct Codec<std::int64_t> {
  static constexpr ValueType kType = {ValueKind::kInteger};
  static std::int64_t read(const JsonValue& value) {
    const auto* real = std::get_if<double>(&value.data);  // 1e6 is a whole number too
    return real ? static_cast<std::int64_t>(*real) : std::get<std::int64_t>(value.data);
  }
  static std::optional<std::string> write(std::int64_t value) { return std::to_string(value); }
};

template <>
struct Codec<double> {
  static constexpr ValueType kType = {ValueKind::kNumber};
  static double read(const JsonValue& value) {
    const auto* whole = std::get_if<std::int64_t>(&value.data);
    return whole ? static_cast<double>(*whole) : std::get<double>(value.data);
  }
  static std::optional<std::string> write(double value) { return base::number_text(value); }
};

template <>
struct Codec<std::string> {
  static constexpr ValueType kType = {ValueKind::kText};
  static std::string read(const JsonValue& value) { return std::get<std::string>(value.data); }
  static std::optional<std::string> write(const std::string& value) { return json_string(value); }
};

template <typename T>
struct Codec<std::vector<T>> {
  static constexpr ValueType kType = {.kind = Codec<T>::kType.kind, .list = true};
  static std::vector<T> read(const JsonValue& value) {
    std::vector<T> items;
    if (const auto* list = std::get_if<JsonValue::List>(&value.data)) {
      for (const JsonValue& item : *list) items.push_back(Codec<T>::read(item));
    } else {
      items.push_back(Codec<T>::read(value));
    }
    return items;
  }
  static std::optional<std::string> write(const std::vector<T>& items) {
    if (items.empty()) return std::nullopt;
    if (items.size() == 1) return Codec<T>::write(items[0]);
    std::string text;
    for (const T& item : items) text += (text.empty() ? "[" : ", ") + *Codec<T>::write(item);
    return text + "]";
  }
};

template <>
struct Codec<Validation> {
  static constexpr ValueType kType = {ValueKind::kFractionOrPaths};
  static Validation read(const JsonValue& value) {
    if (std::holds_alternative<double>(value.data)) return std::get<double>(value.data);
    return Codec<std::vector<std::string>>::read(value);
  }
  static std::optional<std::string> write(const Validation& value) {
    if (const auto* fraction = std::get_if<double>(&value)) return Codec<double>::write(*fraction);
    return Codec<std::vector<std::string>>::write(std::get<std::vector<std::string>>(value));
  }
};

template <typename T>
struct Codec<std::optional<T>> {
  static constexpr ValueType kType = {
      .kind = Codec<T>::kType.kind, .list = Codec<T>::kType.list, .null = true};
  static std::optional<T> read(const JsonValue& value) {
    if (std::holds_alternative<std::nullptr_t>(value.data)) return std::nullopt;
    return Codec<T>::read(value);
  }
  static std::optional<std::string> write(const std::optional<T>& value) {
    if (!value) return std::nullopt;
    return Codec<T>::write(*value);
  }
};

template <typename T>
struct Codec<Nullable<T>> {
  static constexpr ValueType kType = {
      .kind = Codec<T>::kType.kind, .null = true, .null_value = true};
  static Nullable<T> read(const JsonValue& value) {
    return Nullable<T>(std::in_place, Codec<std::optional<T>>::read(value));
  }
  static std::optional<std::string> write(const Nullable<T>& value) {
    if (!value) return std::nullopt;
    return Codec<std::optional<T>>::write(*value).value_or("null");
  }
};

}  // namespace g2::config
