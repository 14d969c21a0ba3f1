#include "baton/model/model_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::model {
namespace {

/// The number that a text is in just this form; nullopt if it is none.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && fmt::format("{}", number) == text ? std::optional(number) : std::nullopt;
}

/// Numbers with dashes between them; nullopt if a part is not a number.
std::optional<std::vector<std::int64_t>> sizes_in(std::string_view text) {
  std::vector<std::int64_t> sizes;
  for (const std::string_view part : split(text, '-')) {
    const std::optional<std::int64_t> size = number_in<std::int64_t>(part);
    if (!size) {
      return std::nullopt;
    }
    sizes.push_back(*size);
  }
  return sizes;
}

ModelSetting::Value value_in(std::string_view text) {
  if (const std::optional<std::int64_t> whole = number_in<std::int64_t>(text)) {
    return *whole;
  }
  if (const std::optional<double> real = number_in<double>(text); real && std::isfinite(*real)) {
    return *real;
  }
  if (const std::optional<std::vector<std::int64_t>> sizes = sizes_in(text)) {
    return *sizes;
  }
  return std::string(text);
}

ModelSetting setting_in(std::string_view text) {
  const std::size_t equals = text.find('=');
  return equals == std::string_view::npos ? ModelSetting{std::nullopt, value_in(text)}
                                          : ModelSetting{std::string(text.substr(0, equals)), value_in(text.substr(equals + 1))};
}

}  // namespace

void ModelSetting::require_value(std::string_view what) const {
  if (const auto* written = std::get_if<std::string>(&value); !key && written != nullptr) {
    throw usage_error("{} has no value: write {}=NUMBER", what, *written);
  }
}

std::int64_t ModelSetting::whole(std::string_view what, std::int64_t low, std::int64_t high) const {
  require_value(what);
  const auto* given = std::get_if<std::int64_t>(&value);
  return given != nullptr && *given >= low && *given <= high ? *given : parse_integer(value_text(), what, low, high);
}

double ModelSetting::number(std::string_view what, double low, double high) const {
  require_value(what);
  const auto* given = std::get_if<double>(&value);
  const auto* whole = std::get_if<std::int64_t>(&value);
  const double number = given != nullptr ? *given : whole != nullptr ? static_cast<double>(*whole) : low - 1;
  return number >= low && number <= high ? number : parse_number(value_text(), what, low, high);
}

std::vector<std::int64_t> ModelSetting::sizes(std::string_view what, std::int64_t low, std::int64_t high) const {
  const auto* given = std::get_if<std::vector<std::int64_t>>(&value);
  if (given != nullptr && std::all_of(given->begin(), given->end(), [&](std::int64_t one) { return one >= low && one <= high; })) {
    return *given;
  }
  std::vector<std::int64_t> list;
  const std::string written = value_text();
  for (const std::string_view one : split(written, '-')) {
    list.push_back(parse_integer(one, what, low, high));
  }
  return list;
}

std::size_t ModelSetting::choice(const std::vector<std::string>& names, std::string_view what) const {
  return index_of_name(names, value_text(), what);
}

std::string ModelSetting::name() const { return canonical(key ? *key : value_text()); }

std::string ModelSetting::value_text() const {
  const auto* sizes = std::get_if<std::vector<std::int64_t>>(&value);
  const auto* real = std::get_if<double>(&value);
  const auto* whole = std::get_if<std::int64_t>(&value);
  return sizes != nullptr   ? fmt::format("{}", fmt::join(*sizes, "-"))
         : real != nullptr  ? fmt::format("{}", *real)
         : whole != nullptr ? fmt::format("{}", *whole)
                            : std::get<std::string>(value);
}

std::string ModelSetting::text() const { return key ? fmt::format("{}={}", *key, value_text()) : value_text(); }

ModelSettings::ModelSettings(std::string_view text) {
  for (const std::string_view setting : split(text, ',')) {
    list_.push_back(setting_in(setting));
  }
}

const ModelSetting* ModelSettings::find(std::string_view key) const {
  const auto found = std::find_if(list_.begin(), list_.end(),
                                  [&](const ModelSetting& one) { return one.key && canonical(*one.key) == key; });
  return found == list_.end() ? nullptr : &*found;
}

ModelSettings& ModelSettings::add(std::string key, ModelSetting::Value value) {
  list_.push_back({std::move(key), std::move(value)});
  return *this;
}

ModelSettings& ModelSettings::add(ModelSetting::Value value) {
  list_.push_back({std::nullopt, std::move(value)});
  return *this;
}

ModelSettings ModelSettings::with(const ModelSettings& more) const {
  if (more.empty()) {
    return *this;
  }
  ModelSettings all;
  for (const ModelSetting& own : list_) {
    if (std::none_of(more.list_.begin(), more.list_.end(), [&](const ModelSetting& one) { return one.name() == own.name(); })) {
      all.list_.push_back(own);
    }
  }
  all.list_.insert(all.list_.end(), more.list_.begin(), more.list_.end());
  return all;
}

void ModelSettings::for_each(const std::function<void(const ModelSetting& setting, const std::string& name)>& visit) const {
  std::set<std::string> seen;
  for (const ModelSetting& setting : list_) {
    const std::string name = setting.name();
    if (seen.contains(name)) {
      throw usage_error("'{}' has {} twice: give it once", text(), name);
    }
    visit(setting, name);
    seen.insert(name);  // unknown names are refused by now, so that these are few
  }
}

std::string ModelSettings::text() const {
  std::string text;
  for (const ModelSetting& setting : list_) {
    text += (&setting == &list_.front() ? "" : ",") + setting.text();
  }
  return text;
}

ModelName::ModelName(std::string_view text) : kind_(text.substr(0, text.find(':'))) {
  if (kind_.size() < text.size()) {
    settings_ = ModelSettings(text.substr(kind_.size() + 1));
  }
}

std::string ModelName::text() const { return settings_.list().empty() ? kind_ : fmt::format("{}:{}", kind_, settings_.text()); }

}  // namespace baton::model
