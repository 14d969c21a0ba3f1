#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/fingerprint.h"
#include "baton/training/job.h"

namespace baton::app {

/// Adds a flag for each field of a job to a command, or only for those that are named.
void add_job_flags(CLI::App& command, job::JobSpec& spec, const std::vector<std::string>& only = {});

/// Adds a flag whose value is a number in [low, high], which help shows as `job::range_text`. It is parsed when the command line is
/// read; a value that is optional stays nullopt if the flag is not given.
template <typename Value, typename Number>
CLI::Option* add_number(CLI::App& command, const std::string& flags, Value& value, Number low, Number high,
                        const std::string& help) {
  const auto set = [&value, low, high, name = flags.substr(flags.rfind(',') + 1)](const std::string& text) {
    if constexpr (std::is_integral_v<Number>) {
      value = parse_integer(text, name, low, high);
    } else {
      value = parse_number(text, name, low, high);
    }
  };
  CLI::Option* option = command.add_option_function<std::string>(flags, set, help);
  if constexpr (std::is_integral_v<Number>) {
    option->type_name(job::range_text(std::int64_t{low}, std::int64_t{high}));
  } else {
    option->type_name(job::range_text(double{low}, double{high}));
  }
  if constexpr (std::is_arithmetic_v<Value>) {
    option->default_str(fmt::format("{}", value));
  }
  return option;
}

/// A number as ranks compare it; empty if it is not given.
template <typename Number>
std::string setting_text(const std::optional<Number>& value) {
  return value ? fmt::format("{}", *value) : "";
}

/// The settings that all ranks must share: every field of a job except those that describe the rank itself.
void add_settings(const job::JobSpec& spec, std::vector<exec::Setting>& settings);

/// The flags that say what data a job reads: commands that only time or simulate its step refuse them.
const std::vector<std::string>& data_flags();

/// Hides flags of a job from help, completion and manual: the command refuses them with a sentence.
void hide_job_flags(CLI::App& command, const std::vector<std::string>& names);

}  // namespace baton::app
