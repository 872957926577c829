// Any bytes as a config and as a --set argument: either a UsageError of one line that opens with a
// place, or a config whose effective JSON reads back as itself. Seeds: tests/fuzz/seeds/config.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "config/effective.h"
#include "config/load.h"

namespace {

void check(const std::string& text, const std::vector<std::string>& overrides) {
  std::string effective;
  std::string annotated;
  try {
    const auto loaded = g2::config::parse_config(text, "c", overrides);
    effective = g2::config::effective_json(loaded.config);
    annotated = g2::config::annotated_json(loaded);
  } catch (const g2::base::UsageError& error) {
    const std::string message = error.what();
    const bool placed = message.starts_with("c:") || message.starts_with("--set ");
    if (!placed || message.find('\n') != std::string::npos) std::abort();
    return;
  }
  // Outside the try: what was written must be accepted.
  const auto again = g2::config::parse_config(effective, "again");
  if (g2::config::effective_json(again.config) != effective) std::abort();
  const auto commented = g2::config::parse_config(annotated, "annotated");
  if (g2::config::effective_json(commented.config) != effective) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(text, {});
  check("{}", {text});
  return 0;
}
