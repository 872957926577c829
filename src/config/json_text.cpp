#include "config/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace g2::config {
namespace {

using base::cat;

constexpr std::size_t kMaxDepth = 16;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Walks over the text behind the parser. nlohmann's events carry no place, but between two events
// lie only blanks, comments, commas and colons, all of which the parser has accepted.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Goes to the next token and returns its place.
  Place to_token() {
    while (offset_ < text_.size()) {
      if (rest().starts_with("//")) {
        to(text_.find('\n', offset_));
      } else if (rest().starts_with("/*")) {
        to(text_.find("*/", offset_ + 2) + 2);
      } else if (std::string_view(" \t\r\n,:").find(text_[offset_]) != std::string_view::npos) {
        step();
      } else {
        break;
      }
    }
    return place_;
  }

  // Passes the token under the cursor and returns it as written.
  std::string_view pass_token() {
    const std::size_t begin = offset_;
    if (text_[begin] == '"') {
      step();
      while (text_[offset_] != '"') {
        if (text_[offset_] == '\\') step();
        step();
      }
      step();
    } else if (std::string_view("{}[]").find(text_[begin]) != std::string_view::npos) {
      step();
    } else {
      to(text_.find_first_of(" \t\r\n,:{}[]/", begin));
    }
    return text_.substr(begin, offset_ - begin);
  }

  Place at(std::size_t offset) {
    to(offset);
    return place_;
  }

 private:
  std::string_view rest() const { return text_.substr(offset_); }

  void to(std::size_t offset) {
    while (offset_ < std::min(offset, text_.size())) step();
  }

  void step() {
    const auto byte = static_cast<unsigned char>(text_[offset_++]);
    if (byte == '\n') {
      place_ = {place_.line + 1, 1};
    } else if (offset_ == text_.size() || (text_[offset_] & 0xC0) != 0x80) {  // a character ends
      ++place_.column;
    }
  }

  std::string_view text_;
  std::size_t offset_ = 0;
  Place place_;
};

// Without "parse error at line 1, column 2: ", which the place says better.
std::string plain_reason(std::string_view what) {
  std::string reason = base::json_reason(what);
  if (reason.starts_with("parse error at ")) reason.erase(0, reason.find(": ") + 2);
  return reason;
}

class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, const std::string& name)
      : cursor_(text), text_(text), name_(name) {}

  JsonValue take() { return std::move(root_); }

  bool null() override { return add_scalar(nullptr); }
  bool boolean(bool value) override { return add_scalar(value); }
  bool number_integer(std::int64_t value) override { return add_scalar(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (value <= static_cast<std::uint64_t>(INT64_MAX)) {
      return add_scalar(static_cast<std::int64_t>(value));
    }
    return add_scalar(static_cast<double>(value));
  }
  bool number_float(double value, const std::string& /*text*/) override {
    return add_scalar(value);
  }
  bool string(std::string& value) override { return add_scalar(std::move(value)); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return false; }  // not in JSON text

  bool start_object(std::size_t /*members*/) override {
    return open(JsonValue::Object{}, "an object");
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*items*/) override { return open(JsonValue::List{}, "a list"); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const Place place = cursor_.to_token();
    cursor_.pass_token();
    auto& members = std::get<JsonValue::Object>(open_.back()->data);
    for (const JsonMember& member : members) {
      if (member.key == name) {
        throw base::UsageError(cat(place_text(name_, place),
                                   ": key ",
                                   json_string(shortened(name)),
                                   " is given twice, first in line ",
                                   member.place.line));
      }
    }
    members.push_back({std::move(name), place, {}});
    return true;
  }

  bool parse_error(std::size_t characters_read,
                   const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) override {
    const std::size_t offset =
        std::min(std::max<std::size_t>(characters_read, 1) - 1, text_.size());
    throw base::UsageError(cat(place_text(name_, Cursor(text_).at(offset)),
                               ": not valid JSON: ",
                               plain_reason(error.what())));
  }

 private:
  template <typename T>
  bool add_scalar(T value) {
    JsonValue& slot = next_slot();
    slot.place = cursor_.to_token();
    slot.source = cursor_.pass_token();
    slot.data = std::move(value);
    return true;
  }

  template <typename T>
  bool open(T container, const char* words) {
    JsonValue& slot = next_slot();
    slot.place = cursor_.to_token();
    slot.source = words;
    slot.data = std::move(container);
    cursor_.pass_token();
    open_.push_back(&slot);
    if (open_.size() > kMaxDepth) {
      throw base::UsageError(
          cat(place_text(name_, slot.place), ": nested deeper than ", kMaxDepth, " levels"));
    }
    return true;
  }

  bool close() {
    cursor_.to_token();
    cursor_.pass_token();
    open_.pop_back();
    return true;
  }

  // Pointers in open_ stay valid: only the innermost open container grows.
  JsonValue& next_slot() {
    if (open_.empty()) return root_;
    if (auto* list = std::get_if<JsonValue::List>(&open_.back()->data)) {
      return list->emplace_back();
    }
    return std::get<JsonValue::Object>(open_.back()->data).back().value;
  }

  Cursor cursor_;
  std::string_view text_;
  const std::string& name_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
};

}  // namespace

JsonValue parse_json(std::string_view text, const std::string& name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  TreeBuilder builder(text, name);
  nlohmann::json::sax_parse(
      text, &builder, nlohmann::json::input_format_t::json, /*strict=*/true, /*comments=*/true);
  return builder.take();
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kMaxShown = 60;
  if (text.size() <= kMaxShown) return std::string(text);
  return cat(text.substr(0, base::complete_utf8_prefix(text.substr(0, kMaxShown))), "...");
}

std::string place_text(const std::string& name, Place place) {
  return cat(name, ":", place.line, ":", place.column);
}

}  // namespace g2::config
