#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/units.h"
#include "baton/job/json.h"

/// Records: what was measured or derived, by typed keys (keys.h). They keep values as JSON, as files do; code reads
/// and writes them through keys, which know the type.
namespace baton::job {

class Record;

/// A value under the name of its key, on its way into a record.
struct Entry {
  const char* name;
  Json value;
};

/// A key of records: its name in files, and the type of its value.
template <typename T>
struct Key {
  const char* name;

  operator std::string() const { return name; }  // NOLINT: columns, axes and plots are named by keys
  Entry operator()(const T& value) const;
};

/// Counts and measured values: any of these is read as a number too.
template <typename T>
concept Numeric = std::same_as<T, double> || std::same_as<T, std::int64_t> || std::same_as<T, Nanoseconds> ||
    std::same_as<T, Bytes>;

/// Values by key, in order.
class Record {
 public:
  Record() : values_(Json::object()) {}
  Record(std::initializer_list<Entry> entries) : Record() {
    for (const Entry& entry : entries) {
      set(entry);
    }
  }
  Record(Json values)  // NOLINT: the JSON of a file
      : values_(std::move(values)) {
    check(values_.is_object(), "a record is not an object");
  }

  const Json& json() const { return values_; }
  bool empty() const { return values_.empty(); }

  template <typename T>
  bool has(Key<T> key) const {
    return values_.contains(key.name);
  }
  /// The value; a record that has none of this type is a bug, or a file that was changed.
  template <typename T>
  T operator[](Key<T> key) const;
  /// The value, or this one if there is none. A value of another type is a bug, or a file that was changed.
  template <typename T>
  T value(Key<T> key, const std::type_identity_t<T>& otherwise) const {
    return is_known(key.name) ? (*this)[key] : otherwise;
  }

  template <typename T>
  void set(Key<T> key, const std::type_identity_t<T>& value) {
    set(key(value));
  }
  void set(const Entry& entry) { values_[entry.name] = entry.value; }
  /// A number that was computed, so that it need not be whole.
  template <Numeric T>
  void set_number(Key<T> key, double value) {
    values_[key.name] = value;
  }
  void erase(const std::string& name) { values_.erase(name); }
  /// Copies all values of the other.
  void update(const Record& other) { values_.update(other.values_); }

  /// Finds a value by a name that is known only when the program runs: a column of a table, an axis of a spec. nullptr if there is
  /// none.
  const Json* find(const std::string& column) const {
    const auto found = values_.find(column);
    return found == values_.end() ? nullptr : &*found;
  }
  /// Only for a column that it has.
  const Json& at(const std::string& column) const {
    const Json* value = find(column);
    check(value != nullptr, "a row has no {}", column);
    return *value;
  }
  void put(const std::string& column, Json value) { values_[column] = std::move(value); }

  bool operator==(const Record& other) const { return values_ == other.values_; }

 private:
  bool is_known(const char* name) const {
    const auto found = values_.find(name);
    return found != values_.end() && !found->is_null();
  }

  Json values_;
};

template <typename T>
constexpr bool is_optional_value = false;
template <typename T>
constexpr bool is_optional_value<std::optional<T>> = true;

/// The JSON in which a value of each type is kept.
template <typename T>
Json to_stored(const T& value) {
  if constexpr (std::is_same_v<T, Nanoseconds> || std::is_same_v<T, Bytes>) {
    return value.count;
  } else if constexpr (std::is_same_v<T, Record>) {
    return value.json();
  } else if constexpr (std::is_same_v<T, std::vector<Record>>) {
    Json list = Json::array();
    for (const Record& one : value) {
      list.push_back(one.json());
    }
    return list;
  } else if constexpr (is_optional_value<T>) {
    return value ? Json(*value) : Json();
  } else {
    return value;
  }
}

template <typename T>
T from_stored(const Json& value, const char* name) {
  if constexpr (std::is_same_v<T, double>) {
    check(value.is_number(), "a row has no number {}", name);
    return value.get<double>();
  } else if constexpr (Numeric<T>) {
    check(value.is_number() && std::abs(value.get<double>()) < 9e18, "a row has no number {}", name);
    return T(value.is_number_integer() ? value.get<std::int64_t>() : static_cast<std::int64_t>(value.get<double>()));
  } else if constexpr (std::is_same_v<T, Record>) {
    check(value.is_object(), "a row has no {}", name);
    return Record(value);
  } else if constexpr (std::is_same_v<T, std::vector<Record>>) {
    check(value.is_array(), "a row has no {}", name);
    std::vector<Record> list;
    for (const Json& one : value) {
      list.emplace_back(one);
    }
    return list;
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    check(value.is_array(), "a row has no {}", name);
    std::vector<double> list;  // NaN is null in a file; it may carry a sign, which would be printed
    for (const Json& one : value) {
      const bool number = one.is_number() && !std::isnan(one.get<double>());
      list.push_back(number ? one.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
    return list;
  } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    check(value.is_array(), "a row has no {}", name);
    std::vector<std::int64_t> list;
    for (const Json& one : value) {
      list.push_back(from_stored<std::int64_t>(one, name));
    }
    return list;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    check(value.is_number_unsigned(), "a row has no number {}", name);
    return value.get<T>();
  } else if constexpr (is_optional_value<T>) {
    return value.is_number() ? std::optional(from_stored<typename T::value_type>(value, name)) : std::nullopt;
  } else if constexpr (std::is_same_v<T, Json>) {
    return value;
  } else {
    static_assert(std::is_same_v<T, bool> || std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>);
    const auto is_text = [](const Json& one) { return one.is_string(); };
    const bool right = std::is_same_v<T, bool>          ? value.is_boolean()
                       : std::is_same_v<T, std::string> ? value.is_string()
                                                        : value.is_array() && std::all_of(value.begin(), value.end(), is_text);
    check(right, "a row has no {}", name);
    return value.get<T>();
  }
}

template <typename T>
Entry Key<T>::operator()(const T& value) const {
  return {name, to_stored(value)};
}

template <typename T>
T Record::operator[](Key<T> key) const {
  const auto found = values_.find(key.name);
  check(found != values_.end(), "a row has no {}", key.name);
  return from_stored<T>(*found, key.name);
}

/// The value as a number: nanoseconds, bytes, or what it counts.
template <Numeric T>
double number(const Record& record, Key<T> key) {
  const Json* value = record.find(key);
  check(value != nullptr && value->is_number(), "a row has no number {}", key.name);
  return value->get<double>();
}
/// The number of the row, or `otherwise` if there is none: values that were not measured are null.
template <Numeric T>
double number(const Record& record, Key<T> key, double otherwise) {
  const Json* value = record.find(key);
  return value == nullptr || !value->is_number() ? otherwise : value->get<double>();
}

}  // namespace baton::job
