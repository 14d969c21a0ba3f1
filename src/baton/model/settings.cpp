#include "baton/model/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::model {

void read_settings(std::string_view kind, std::string_view arguments, std::span<const Setting> settings, std::string_view example,
                   std::span<const ShareSetting> shares) {
  for_each_setting(arguments, [&](std::string_view setting, const std::string& key, std::string_view value) {
    const auto share = std::find_if(shares.begin(), shares.end(), [&](const ShareSetting& one) { return one.key == key; });
    if (share != shares.end()) {
      *share->value = parse_number(value, fmt::format("{} of the {} model", key, kind), 0, 0.99);
      return;
    }
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& one) { return one.key == key; });
    if (found == settings.end()) {
      std::vector<std::string> known;
      for (const Setting& one : settings) {
        known.push_back(fmt::format("{}=N", one.key));
      }
      for (const ShareSetting& one : shares) {
        known.push_back(fmt::format("{}=X", one.key));
      }
      throw usage_error("model '{}:{}' has '{}', but it takes {}", kind, arguments, setting, fmt::join(known, ","));
    }
    *found->value = parse_integer(value, fmt::format("{} of the {} model", key, kind), 1, found->most);
  });
  for (const Setting& one : settings) {
    if (*one.value == 0) {
      throw usage_error("model '{}:{}' needs {}, as in {}", kind, arguments, one.key, example);
    }
  }
}

std::string dropout_text(double rate) { return rate > 0 ? fmt::format(",dropout={}", rate) : ""; }

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
