#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace baton::model {

/// A setting of a model as it is asked for: `dim=64`, `tied=on`, `blocks=3-4-6-3`; or without a key, as the 50 of `resnet:50` and
/// the 32-64 of `cnn:32-64`. Numbers are numbers. What is written as no number is (`064`, `x`) stays as it is written.
struct ModelSetting {
  using Value = std::variant<std::string, std::int64_t, double, std::vector<std::int64_t>>;

  std::optional<std::string> key;  // as it is written
  Value value;

  /// The value as a number or numbers within [low, high]; a usage error calls it `what`.
  std::int64_t whole(std::string_view what, std::int64_t low, std::int64_t high) const;
  double number(std::string_view what, double low, double high) const;
  std::vector<std::int64_t> sizes(std::string_view what, std::int64_t low, std::int64_t high) const;
  /// The index of its value among the names; a usage error lists them.
  std::size_t choice(const std::vector<std::string>& names, std::string_view what) const;

  /// The key in its `canonical` form; without a key, the text.
  std::string name() const;
  std::string value_text() const;
  /// `dim=64`.
  std::string text() const;
  bool operator==(const ModelSetting&) const = default;

 private:
  /// Refuses a key that stands alone, as in `gpt:vocab`.
  void require_value(std::string_view what) const;
};

/// The settings of a model in the order in which they are given.
class ModelSettings {
 public:
  ModelSettings() = default;
  ModelSettings(std::string_view text);                                       // NOLINT: `dim=64,depth=2` is a list of settings
  ModelSettings(const char* text) : ModelSettings(std::string_view(text)) {}  // NOLINT
  ModelSettings(const std::string& text) : ModelSettings(std::string_view(text)) {}  // NOLINT

  const std::vector<ModelSetting>& list() const { return list_; }
  /// True if nothing is written.
  bool empty() const { return text().empty(); }
  /// nullptr if it is not among them.
  const ModelSetting* find(std::string_view key) const;

  ModelSettings& add(std::string key, ModelSetting::Value value);
  ModelSettings& add_switch(std::string key, bool on) { return add(std::move(key), on ? "on" : "off"); }
  /// Adds a value without a key.
  ModelSettings& add(ModelSetting::Value value);
  /// Adds a setting that is not at its default.
  template <typename Value>
  ModelSettings& add_unless(std::string key, Value value, Value usual) {
    if constexpr (std::is_same_v<Value, bool>) {
      return value == usual ? *this : add_switch(std::move(key), value);
    } else {
      return value == usual ? *this : add(std::move(key), value);
    }
  }
  /// These, with those of `more` in place of their own.
  ModelSettings with(const ModelSettings& more) const;

  /// Visits one after the other, with its name. A repeated name is a usage error.
  void for_each(const std::function<void(const ModelSetting& setting, const std::string& name)>& visit) const;

  /// `dim=64,depth=2`. Reading it gives the settings again, and the text of settings that were read is what was read.
  std::string text() const;
  bool operator==(const ModelSettings&) const = default;

 private:
  std::vector<ModelSetting> list_;
};

/// A model as it is asked for: a kind of the zoo, a preset or a path, and settings. `parse_model` makes the model of it.
class ModelName {
 public:
  ModelName(std::string_view text);                                          // NOLINT: `mlp:dim=64,depth=2` is the name of a model
  ModelName(const char* text) : ModelName(std::string_view(text)) {}         // NOLINT
  ModelName(const std::string& text) : ModelName(std::string_view(text)) {}  // NOLINT
  ModelName(std::string kind, ModelSettings settings) : kind_(std::move(kind)), settings_(std::move(settings)) {}

  /// True if no model is named.
  bool empty() const { return kind_.empty() && settings_.list().empty(); }
  /// The kind as it was written.
  const std::string& kind() const { return kind_; }
  const ModelSettings& settings() const { return settings_; }
  /// The same model with these settings in place of its own.
  ModelName with(const ModelSettings& more) const { return {kind_, settings_.with(more)}; }

  /// `mlp:dim=64,depth=2`. The text of a name that was read is what was read.
  std::string text() const;
  bool operator==(const ModelName&) const = default;

 private:
  std::string kind_;
  ModelSettings settings_;
};

}  // namespace baton::model
