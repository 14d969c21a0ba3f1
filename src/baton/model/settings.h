#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
  std::int64_t most = 0;  // of a size
  bool optional = false;
};

/// Reads `dim=64,depth=2` into the settings. A usage error says what the kind of model takes, or which setting is missing, and
/// shows `example`.
void read_settings(std::string_view kind, std::string_view arguments, std::span<const Setting> settings, std::string_view example);

/// A model that is known by a name of its own, and the settings that it stands for.
struct Preset {
  std::string name;
  std::string arguments;
};

/// `,KEY=VALUE` for a setting that is not at its default, for the name of a model; nothing otherwise.
std::string unless_usual(std::string_view key, std::int64_t value, std::int64_t usual);
std::string unless_usual(std::string_view key, double value, double usual);
std::string unless_usual(std::string_view key, bool value, bool usual);

/// The preset's settings with those of `arguments` in place of its own.
std::string with_settings(const Preset& preset, std::string_view arguments);

/// The name of the preset that stands for just these settings of a kind of model; otherwise `KIND:ARGUMENTS`.
std::string name_of(std::string_view kind, const std::string& arguments, const std::vector<Preset>& presets);

}  // namespace baton::model
