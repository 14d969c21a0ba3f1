#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/units.h"
#include "baton/exec/fingerprint.h"
#include "baton/job/spec_text.h"
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

/// Adds a flag whose value is an amount of at least `least`, which help names if it is not 0. It is parsed when the
/// command line is read; a value that is optional stays nullopt if the flag is not given.
template <typename Value, typename Amount>
CLI::Option* add_amount(CLI::App& command, const std::string& flags, Value& value, Amount least,
                        Amount (*parse)(std::string_view text, std::string_view what), const char* type, const std::string& help) {
  const auto set = [&value, least, parse, name = flags.substr(flags.rfind(',') + 1)](const std::string& text) {
    const Amount given = parse(text, name);
    if (given < least) {
      throw usage_error("{} is '{}', but must be at least {}", name, text, job::flag_text(least));
    }
    value = given;
  };
  const std::string bound = least == Amount() ? "" : ", at least " + job::flag_text(least);
  CLI::Option* option = command.add_option_function<std::string>(flags, set, help + bound)->type_name(type);
  if constexpr (std::is_same_v<Value, Amount>) {
    option->default_str(job::flag_text(value));
  }
  return option;
}
/// A time: 50us, 10ms, 1.5s.
template <typename Value>
CLI::Option* add_time(CLI::App& command, const std::string& flags, Value& value, Nanoseconds least, const std::string& help) {
  return add_amount(command, flags, value, least, parse_time, "TIME", help);
}
/// A size in bytes: 64K, 512MiB, 1G.
template <typename Value>
CLI::Option* add_size(CLI::App& command, const std::string& flags, Value& value, Bytes least, const std::string& help) {
  return add_amount(command, flags, value, least, parse_bytes, "SIZE", help);
}

/// The largest seed.
constexpr std::int64_t most_seed = std::numeric_limits<std::int64_t>::max();

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
