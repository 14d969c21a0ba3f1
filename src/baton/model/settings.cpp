#include "baton/model/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::model {
namespace {

/// "dim=N", "eps=NUMBER" or "tied=on|off".
std::string form_of(const Setting& setting) {
  constexpr std::array<std::string_view, 3> values{"N", "NUMBER", "on|off"};
  return fmt::format("{}={}", setting.key, values[setting.value.index()]);
}

/// Puts the text of a value where the setting is kept.
void set(const Setting& setting, std::string_view text, const std::string& what) {
  if (std::int64_t* const* size = std::get_if<std::int64_t*>(&setting.value)) {
    **size = parse_integer(text, what, 1, setting.most);
  } else if (double* const* number = std::get_if<double*>(&setting.value)) {
    **number = parse_number(text, what, 0, 0.99);
  } else {
    *std::get<bool*>(setting.value) = index_of_name({"off", "on"}, text, what) == 1;
  }
}

}  // namespace

void read_settings(std::string_view kind, std::string_view arguments, std::span<const Setting> settings, std::string_view example) {
  for_each_setting(arguments, [&](std::string_view setting, const std::string& key, std::string_view value) {
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& one) { return one.key == key; });
    if (found == settings.end()) {
      std::vector<std::string> known;
      for (const Setting& one : settings) {
        known.push_back(form_of(one));
      }
      throw usage_error("model '{}:{}' has '{}', but it takes {}", kind, arguments, setting, fmt::join(known, ","));
    }
    set(*found, value, fmt::format("{} of the {} model", key, kind));
  });
  for (const Setting& one : settings) {
    std::int64_t* const* size = std::get_if<std::int64_t*>(&one.value);
    if (size != nullptr && **size == 0 && !one.optional) {
      throw usage_error("model '{}:{}' needs {}, as in {}", kind, arguments, one.key, example);
    }
  }
}

std::string unless_usual(std::string_view key, std::int64_t value, std::int64_t usual) {
  return value == usual ? "" : fmt::format(",{}={}", key, value);
}

std::string unless_usual(std::string_view key, double value, double usual) {
  return value == usual ? "" : fmt::format(",{}={}", key, value);
}

std::string unless_usual(std::string_view key, bool value, bool usual) {
  return value == usual ? "" : fmt::format(",{}={}", key, value ? "on" : "off");
}

std::string with_settings(const Preset& preset, std::string_view arguments) {
  if (arguments.empty()) {
    return preset.arguments;
  }
  std::set<std::string> given;
  for (const std::string_view setting : split(arguments, ',')) {
    given.insert(canonical(setting.substr(0, setting.find('='))));
  }
  std::string text;
  for (const std::string_view setting : split(preset.arguments, ',')) {
    if (!given.contains(std::string(setting.substr(0, setting.find('='))))) {
      text += fmt::format("{},", setting);
    }
  }
  return text + std::string(arguments);
}

std::string name_of(std::string_view kind, const std::string& arguments, const std::vector<Preset>& presets) {
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const Preset& one) { return one.arguments == arguments; });
  return found == presets.end() ? fmt::format("{}:{}", kind, arguments) : found->name;
}

}  // namespace baton::model
