#include "baton/lab/point.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/job/step_json.h"

namespace baton::lab {

std::string word_of(const job::FieldValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : job::to_json(value).dump();
}

std::optional<Point> Point::parse(const Json& json) {
  Point point;
  if (!json.is_object()) {
    return std::nullopt;
  }
  for (const auto& [axis, value] : json.items()) {
    if (!value.is_string() && !value.is_number()) {
      return std::nullopt;
    }
    point.set(axis, job::field_value(value));
  }
  return point;
}

const job::FieldValue* Point::find(std::string_view axis) const {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const Value& value) { return value.first == axis; });
  return found == values_.end() ? nullptr : &found->second;
}

const job::FieldValue& Point::operator[](std::string_view axis) const {
  const job::FieldValue* value = find(axis);
  check(value != nullptr, "a point has no {}", axis);
  return *value;
}

void Point::set(const std::string& axis, job::FieldValue value) {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const Value& one) { return one.first == axis; });
  if (found != values_.end()) {
    found->second = std::move(value);
  } else {
    values_.emplace_back(axis, std::move(value));
  }
}

Json Point::json() const {
  Json json = Json::object();
  for (const auto& [axis, value] : values_) {
    json[axis] = job::to_json(value);
  }
  return json;
}

std::string to_words(const Point& point) {
  std::string text;
  for (const auto& [axis, value] : point) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis, word_of(value));
  }
  return text;
}

std::string text(const Point& point, const std::string& axis) { return word_of(point[axis]); }

double number(const Point& point, const std::string& axis) {
  const Json value = job::to_json(point[axis]);
  check(value.is_number(), "a point has no number {}", axis);
  return value.get<double>();
}

std::int64_t whole_number(const Point& point, const std::string& axis, std::int64_t low, std::int64_t high) {
  return parse_integer(text(point, axis), axis, low, high);
}

std::vector<job::FieldValue> values_of(const std::vector<Point>& points, const std::string& axis) {
  std::vector<job::FieldValue> values;
  for (const Point& point : points) {
    const job::FieldValue* value = point.find(axis);
    if (value != nullptr && std::find(values.begin(), values.end(), *value) == values.end()) {
      values.push_back(*value);
    }
  }
  return values;
}

}  // namespace baton::lab
