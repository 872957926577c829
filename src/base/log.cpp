#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <string>

#include "base/error.h"
#include "base/progress.h"

namespace g2::base {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = spdlog::stderr_color_mt("gemma2_train");
    created->set_pattern("%H:%M:%S %^%l%$ %v");
    created->flush_on(spdlog::level::trace);
    return created;
  }();
  return *instance;
}

void write(spdlog::level::level_enum level, std::string_view message) {
  if (!logger().should_log(level)) return;
  clear_progress_line();
  logger().log(level, "{}", message);
}

}  // namespace

void set_log_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug,
                                                   spdlog::level::info,
                                                   spdlog::level::warn,
                                                   spdlog::level::err,
                                                   spdlog::level::off};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void set_log_level(std::string_view level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  for (int i = 0; i < 5; ++i) {
    if (kNames[i] == level) return set_log_level(static_cast<LogLevel>(i));
  }
  throw UsageError("log level '" + std::string(level) +
                   "' is none of debug, info, warning, error, off");
}

void log_debug(std::string_view message) {
  write(spdlog::level::debug, message);
}
void log_info(std::string_view message) {
  write(spdlog::level::info, message);
}
void log_warning(std::string_view message) {
  write(spdlog::level::warn, message);
}
void log_error(std::string_view message) {
  write(spdlog::level::err, message);
}

}  // namespace g2::base
