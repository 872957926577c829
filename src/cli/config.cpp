// gemma2_train config: the effective config of a run, and the reference of all settings.
#include "config/config.h"

#include <cstdio>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/describe.h"
#include "config/effective.h"
#include "config/load.h"

namespace g2::cli {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (!text.ends_with('\n')) std::fputc('\n', stdout);
}

}  // namespace

int config(Args args) {
  ConfigOptions source;
  bool origin = false, schema = false, help_config = false, markdown = false;
  Options options("config", "Prints the effective config: the file, --set, and the defaults.");
  source.add_to(options, Need::kOptional);
  options.flag("--origin", origin, "beside each value, where it comes from");
  options.flag("--schema", schema, "print the JSON Schema of a config instead");
  options.flag("--help-config", help_config, "print every setting with its meaning instead");
  options.flag("--markdown", markdown, "the same as a page, docs/config.md");
  options.at_most_one({"--origin", "--schema", "--help-config", "--markdown"});
  if (!options.parse(args)) return base::kOk;

  if (schema) {
    print(config::json_schema());
  } else if (help_config) {
    print(config::help_text());
  } else if (markdown) {
    print(config::markdown_page());
  } else {
    const config::LoadedConfig loaded =
        source.file.empty() ? config::parse_config("{}", "defaults", source.overrides)
                            : config::load_config(source.file, source.overrides);
    print(origin ? config::annotated_json(loaded) : config::effective_json(loaded.config));
  }
  return base::kOk;
}

}  // namespace g2::cli
