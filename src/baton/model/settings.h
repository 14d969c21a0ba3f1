#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/model/model_name.h"

namespace baton::model {

/// The most that texts may ask for.
inline constexpr std::int64_t max_width = 1 << 20;
inline constexpr std::int64_t max_depth = 1 << 16;
inline constexpr std::int64_t max_image_side = 1 << 14;
inline constexpr std::int64_t max_base = std::int64_t{1} << 40;

/// A setting of a model in its text: a size as in `dim=64`, a number below one as in `dropout=0.1`, or `on` and `off` as in
/// `tied=on`.
struct Setting {
  std::string_view key;
  /// Its value before the text is read is the default. A size that is 0 before must be given, unless it is `optional`.
  std::variant<std::int64_t*, double*, bool*> value;
  std::int64_t most = 0;  // the largest value of a size
  bool optional = false;
};

/// Puts `dim=64,depth=2` where the settings are kept. A usage error says what the kind of model takes, or which setting is missing,
/// and shows `example`.
void read_settings(std::string_view kind, const ModelSettings& given, std::span<const Setting> settings, std::string_view example);

/// A model that is known by a name of its own, and the settings that it stands for.
struct Preset {
  std::string name;
  ModelSettings settings;
};

/// The name of the preset that stands for just these settings of a kind of model; otherwise `KIND:SETTINGS`.
std::string name_of(std::string_view kind, const ModelSettings& settings, const std::vector<Preset>& presets);

}  // namespace baton::model
