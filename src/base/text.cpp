#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace g2::base {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string scaled(double value, double base, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
  return text.data();
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";  // its sign means nothing
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

std::string json_reason(std::string_view what) {
  const std::size_t tag = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  std::string reason(tag == std::string_view::npos ? what : what.substr(tag + 2));
  const std::size_t raw = reason.find("; last read: '");
  if (raw != std::string::npos) {
    const std::size_t end = reason.find("'; expected", raw);
    reason.erase(raw, end == std::string::npos ? end : end + 1 - raw);
  }
  return reason;
}

std::string bytes_text(double bytes) {
  return scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string count_text(double count) {
  return scaled(count, 1000, {"", " K", " M", " B", " T"});
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto total = std::llround(seconds);
  std::array<char, 48> text{};
  if (total >= 48 * 3600) {
    std::snprintf(text.data(), text.size(), "%lld days %lld h", total / 86400, total / 3600 % 24);
  } else if (total >= 3600) {
    std::snprintf(
        text.data(), text.size(), "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", total / 60, total % 60);
  }
  return text.data();
}

std::string utc_time_text(TimeStyle style) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(),
                text.size(),
                style == TimeStyle::kReadable ? "%Y-%m-%dT%H:%M:%SZ" : "%Y%m%dT%H%M%SZ",
                &utc);
  return text.data();
}

}  // namespace g2::base
