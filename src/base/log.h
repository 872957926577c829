// The console log. Hides spdlog, whose headers are slow to compile, behind plain functions.
// Lines go to stderr, so that stdout stays free for what a command produces.
#pragma once

#include <string_view>

namespace g2::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Call once before the first line; "debug", "info", "warning", "error" or "off". Throws UsageError.
void set_log_level(std::string_view level);
void set_log_level(LogLevel level);

void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace g2::base
