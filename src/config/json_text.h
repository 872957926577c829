// JSON with the place of every key and value, so that a mistake is reported where it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace g2::config {

// From 1; a column is one Unicode character.
struct Place {
  std::int64_t line = 1;
  std::int64_t column = 1;
};

struct JsonMember;

struct JsonValue {
  using List = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  // Whole numbers beyond 64 bits are held as double.
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, List, Object> data;
  std::string source;  // as written; "a list" or "an object" for those
  Place place;
};

struct JsonMember {
  std::string key;
  Place place;
  JsonValue value;
};

// Comments are accepted, a byte-order mark is ignored. `name` is the file in messages. Throws
// UsageError "name:line:column: ..." for a syntax error, a key given twice in one object, and
// values nested deeper than 16.
JsonValue parse_json(std::string_view text, const std::string& name);

// `text` as a JSON string; what is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

// For messages: `text`, or its first 60 bytes or so and "...". Requires valid UTF-8.
std::string shortened(std::string_view text);

// "name:line:column"
std::string place_text(const std::string& name, Place place);

}  // namespace g2::config
