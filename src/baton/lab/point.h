#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/job/spec.h"
#include "baton/lab/json.h"

namespace baton::lab {

/// A value of an axis as people write it: a text as it is, a number as in JSON.
std::string word_of(const job::FieldValue& value);

/// One value for each axis of an experiment, in the order of the axes.
class Point {
 public:
  using Value = std::pair<std::string, job::FieldValue>;

  Point() = default;
  Point(std::initializer_list<Value> values) : values_(values) {}
  /// Reads a point from the JSON of a file; nullopt if it is not an object of texts and numbers.
  static std::optional<Point> parse(const Json& json);

  bool contains(std::string_view axis) const { return find(axis) != nullptr; }
  const job::FieldValue* find(std::string_view axis) const;
  /// Only for an axis that it has.
  const job::FieldValue& operator[](std::string_view axis) const;
  void set(const std::string& axis, job::FieldValue value);

  std::vector<Value>::const_iterator begin() const { return values_.begin(); }
  std::vector<Value>::const_iterator end() const { return values_.end(); }

  Json json() const;
  /// Its JSON in one line.
  std::string text() const { return json().dump(); }

  bool operator==(const Point&) const = default;
  /// The order of the values, axis by axis: records are found by their point.
  bool operator<(const Point& other) const { return values_ < other.values_; }

 private:
  std::vector<Value> values_;
};

/// "strategy=ddp devices=2".
std::string to_words(const Point& point);

/// The value of an axis in words.
std::string text(const Point& point, const std::string& axis);
/// The value of an axis as a number; calling it for a text is a bug.
double number(const Point& point, const std::string& axis);
/// A whole number within [low, high]; a usage error if it is not.
std::int64_t whole_number(const Point& point, const std::string& axis, std::int64_t low, std::int64_t high);
/// The values of an axis among the points, each once, in order.
std::vector<job::FieldValue> values_of(const std::vector<Point>& points, const std::string& axis);

}  // namespace baton::lab
