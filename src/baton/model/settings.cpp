#include "baton/model/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "baton/base/error.h"

namespace baton::model {
namespace {

/// "dim=N", "eps=NUMBER" or "tied=on|off".
std::string form_of(const Setting& setting) {
  constexpr std::array<std::string_view, 3> values{"N", "NUMBER", "on|off"};
  return fmt::format("{}={}", setting.key, values[setting.value.index()]);
}

/// Puts the value that is given where the setting is kept.
void set(const Setting& setting, const ModelSetting& given, const std::string& what) {
  if (std::int64_t* const* size = std::get_if<std::int64_t*>(&setting.value)) {
    **size = given.whole(what, 1, setting.most);
  } else if (double* const* number = std::get_if<double*>(&setting.value)) {
    **number = given.number(what, 0, 0.99);
  } else {
    *std::get<bool*>(setting.value) = given.choice({"off", "on"}, what) == 1;
  }
}

}  // namespace

void read_settings(std::string_view kind, const ModelSettings& given, std::span<const Setting> settings, std::string_view example) {
  given.for_each([&](const ModelSetting& setting, const std::string& key) {
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& one) { return one.key == key; });
    if (found == settings.end()) {
      std::vector<std::string> known;
      for (const Setting& one : settings) {
        known.push_back(form_of(one));
      }
      throw usage_error("model '{}:{}' has '{}', but it takes {}", kind, given.text(), setting.text(), fmt::join(known, ","));
    }
    set(*found, setting, fmt::format("{} of the {} model", key, kind));
  });
  for (const Setting& one : settings) {
    std::int64_t* const* size = std::get_if<std::int64_t*>(&one.value);
    if (size != nullptr && **size == 0 && !one.optional) {
      throw usage_error("model '{}:{}' needs {}, as in {}", kind, given.text(), one.key, example);
    }
  }
}

std::string name_of(std::string_view kind, const ModelSettings& settings, const std::vector<Preset>& presets) {
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const Preset& one) { return one.settings == settings; });
  return found == presets.end() ? ModelName(std::string(kind), settings).text() : found->name;
}

}  // namespace baton::model
