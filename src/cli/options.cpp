#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace g2::cli {

struct Options::Parser {
  CLI::App app;

  [[noreturn]] void fail(std::string message) const {
    std::ranges::replace(message, '\n', ' ');
    throw base::UsageError(base::cat(message, "; see ", app.get_name(), " --help"));
  }

  [[noreturn]] void fail_unknown() const {
    const std::string unknown = app.remaining().front();
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    fail(base::cat(unknown.starts_with("-") ? "no option '" : "unexpected argument '",
                   unknown,
                   "'",
                   base::did_you_mean(unknown, names)));
  }
};

Options::Options(const std::string& command, const std::string& description)
    : parser_(std::make_unique<Parser>()) {
  parser_->app.name("gemma2_train " + command);
  parser_->app.description(description);
  parser_->app.allow_extras();  // reported by fail_unknown(), with the nearest name
}

Options::~Options() = default;

void Options::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->app.add_flag(name, value, help);
}

template <typename T>
void Options::add(const std::string& name, T& value, const std::string& help, Need need) {
  CLI::Option* option = parser_->app.add_option(name, value, help);
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    // An option takes one value each time it is given; an argument takes all that follow.
    if (name.starts_with("-")) option->allow_extra_args(false);
  }
  option->required(need == Need::kRequired);
}

void Options::at_most_one(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const std::string& other : names) {
      if (other != name) parser_->app.get_option(name)->excludes(parser_->app.get_option(other));
    }
  }
}

bool Options::parse(Args args) {
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the order CLI11 asks for
  try {
    parser_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    std::fputs(parser_->app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& e) {
    // A misspelt option is the likely reason for a missing one: name it first.
    if (parser_->app.remaining().empty()) parser_->fail(e.what());
  }
  if (!parser_->app.remaining().empty()) parser_->fail_unknown();
  return true;
}

template void Options::add(const std::string&, std::string&, const std::string&, Need);
template void Options::add(const std::string&, std::int64_t&, const std::string&, Need);
template void Options::add(const std::string&, double&, const std::string&, Need);
template void Options::add(const std::string&,
                           std::optional<std::string>&,
                           const std::string&,
                           Need);
template void Options::add(const std::string&,
                           std::optional<std::int64_t>&,
                           const std::string&,
                           Need);
template void Options::add(const std::string&, std::optional<double>&, const std::string&, Need);
template void Options::add(const std::string&, std::vector<std::string>&, const std::string&, Need);

void ConfigOptions::add_to(Options& options, Need need) {
  options.add("--config", file, "JSON file that describes the run", need);
  options.add("--set", overrides, "replace one setting: train.max_steps=50; may be given again");
}

}  // namespace g2::cli
