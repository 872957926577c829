// The settings table as a JSON Schema, as text for a terminal, and as the page docs/config.md.
#pragma once

#include <string>

namespace g2::config {

std::string json_schema();  // draft 2020-12
std::string help_text();
std::string markdown_page();

}  // namespace g2::config
