// Small text helpers: concatenation for messages, nearest name for suggestions, human numbers.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace g2::base {

// Concatenates values as operator<< prints them: cat("step ", 3, ": ", path).
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// The shortest decimal text that reads back as the same double ("0.1", "1e-05", "nan").
std::string number_text(double value);

// The candidate within a small edit distance of `name`, or "" when none is close enough.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// What a JSON library's exception says, without its "[json.exception...] " and without raw input,
// which may hold anything of any length.
std::string json_reason(std::string_view what);

// 1536 -> "1.50 KiB"; 2614341888 -> "2.61 B" (count); 3725.4 -> "1:02:05";
// 208800 -> "2 days 10 h".
std::string bytes_text(double bytes);
std::string count_text(double count);
std::string duration_text(double seconds);

// Now in UTC: "2024-07-31T12:05:00Z"; kCompact drops what a file name should not hold:
// "20240731T120500Z".
enum class TimeStyle { kReadable, kCompact };
std::string utc_time_text(TimeStyle style = TimeStyle::kReadable);

}  // namespace g2::base
