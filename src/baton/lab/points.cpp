/// Points of an experiment: the values that its axes have by default and those that are set.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/job/step_json.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"

namespace baton::lab {
namespace {

/// A value as people write it: a number where it is one.
job::FieldValue parse_value(std::string_view text) {
  std::int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) {
    return whole;
  }
  double real = 0;
  const auto [real_end, real_error] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (real_error == std::errc() && real_end == text.data() + text.size() && std::isfinite(real)) {
    return real;
  }
  return std::string(text);
}

/// The name that values are set by: an axis that is a field of a job goes by any of its spellings.
std::string set_name(std::string_view text) {
  const job::JobField* field = training::find_field(text);
  return axis_name(field == nullptr ? text : field->name);
}

const Axis* axis_of(const Experiment& experiment, std::string_view name) {
  const auto found = std::find_if(experiment.axes.begin(), experiment.axes.end(),
                                  [&](const Axis& axis) { return set_name(axis.name) == name; });
  return found == experiment.axes.end() ? nullptr : &*found;
}

bool can_take(const Experiment& experiment, std::string_view name) {
  const job::JobField* field = training::find_field(name);
  return experiment.trains && field != nullptr && field->beside_axes &&
         std::find(experiment.own_fields.begin(), experiment.own_fields.end(), name) == experiment.own_fields.end();
}

/// Refuses what the field of a job refuses.
void judge(const job::JobField& field, const job::FieldValue& value) {
  job::JobSpec spec;
  field.set(spec, value);
  if (field.require) {
    field.require(value);
  }
}

/// Refuses a text that is none of the names that an axis or the field of its name has.
void check_name(const Axis& axis, const job::JobField* field, const std::string& word) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  };
  for (const std::vector<job::FieldValue>* list : {&axis.quick, &axis.full}) {
    for (const job::FieldValue& one : *list) {
      add(word_of(one));
    }
  }
  if (field != nullptr && field->values) {
    const std::vector<std::string> more = field->values();
    std::for_each(more.begin(), more.end(), add);
  }
  const std::string wanted = canonical(word);
  const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& one) { return canonical(one) == wanted; });
  if (!known && !(field != nullptr && field->takes_beside && field->takes_beside(word))) {
    throw unknown_name(axis.name, word, names);
  }
}

/// Refuses values that an axis cannot have, before anything runs.
void check_value(const Experiment& experiment, const Axis& axis, const job::FieldValue& value) {
  const std::string where = fmt::format("axis {} of experiment {}", axis.name, experiment.id);
  if (axis.check) {
    axis.check(value);
    return;
  }
  if (axis.type == Axis::Type::counts) {
    const auto* count = std::get_if<std::int64_t>(&value);
    if (count == nullptr || *count <= 0) {
      throw usage_error("{} takes whole numbers above 0, but has '{}'", where, word_of(value));
    }
    return;
  }
  const auto is_number = [](const job::FieldValue& one) { return !std::holds_alternative<std::string>(one); };
  const job::JobField* field = training::find_field(axis.name);
  const bool numbers = axis.type == Axis::Type::numbers || (field != nullptr && field->numeric) ||
                       std::all_of(axis.quick.begin(), axis.quick.end(), is_number);
  if (numbers && (!is_number(value) || job::to_json(value).get<double>() < 0)) {
    throw usage_error("{} takes numbers of at least 0, but has '{}'", where, word_of(value));
  }
  if (field != nullptr && (numbers || !field->values)) {
    judge(*field, value);
  } else if (!numbers) {
    check_name(axis, field, word_of(value));
  }
}

}  // namespace

void parse_axis_values(const std::string& text, AxisValues& values) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw usage_error("--set takes axis=value,value, but has '{}'", text);
  }
  std::vector<job::FieldValue>& list = values[set_name(text.substr(0, equals))];
  list.clear();
  const std::string rest = text.substr(equals + 1);
  // Values may hold commas of their own (mlp:dim=8,depth=2): then they are parted by semicolons.
  for (const std::string_view value :
       split(rest, rest.find(';') != std::string::npos || rest.find('=') != std::string::npos ? ';' : ',')) {
    list.push_back(parse_value(value));
  }
}

void set_axis_values(const std::string& axis, std::vector<job::FieldValue> list, AxisValues& values) {
  if (axis.empty() || list.empty()) {
    throw usage_error("the axis '{}' takes at least one value", axis);
  }
  for (job::FieldValue& value : list) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      value = parse_value(std::string(*text));
    }
  }
  values[set_name(axis)] = std::move(list);
}

AxisValues values_for(const Experiment& experiment, const AxisValues& values) {
  AxisValues own;
  for (const Axis& axis : experiment.axes) {
    for (const std::string& name : {set_name(axis.name), axis.also}) {
      if (const auto set = values.find(name); set != values.end()) {
        own.emplace(set_name(axis.name), set->second);
      }
    }
  }
  return own;
}

std::vector<Point> points(const Experiment& experiment, Preset preset, const AxisValues& values) {
  const AxisValues own = values_for(experiment, values);
  for (const auto& [name, list] : values) {
    const bool other_name = std::any_of(experiment.axes.begin(), experiment.axes.end(),
                                        [&, &given = name](const Axis& axis) { return axis.also == given; });
    if (!own.contains(name) && !other_name) {
      std::vector<std::string> names;
      for (const Axis& axis : experiment.axes) {
        names.push_back(axis.name);
      }
      throw usage_error("experiment {} has no axis '{}'{}: it has {}{}", experiment.id, name, did_you_mean(name, names),
                        names.empty() ? "none" : either(names),
                        training::find_field(name) != nullptr && experiment.trains ? ", and sets that option of train itself" : "");
    }
  }
  for (const auto& [name, list] : own) {
    for (const job::FieldValue& value : list) {
      check_value(experiment, *axis_of(experiment, name), value);
    }
  }
  std::vector<Point> all(1);
  for (const Axis& axis : experiment.axes) {
    const auto set = own.find(set_name(axis.name));
    const std::vector<job::FieldValue>& list = set != own.end() ? set->second : preset == Preset::full ? axis.full : axis.quick;
    std::vector<Point> wider;
    for (const Point& point : all) {
      for (const job::FieldValue& value : list) {
        wider.push_back(point);
        wider.back().set(axis.name, value);
      }
    }
    all = std::move(wider);
  }
  return all;
}

Experiment extended(const Experiment& experiment, const std::vector<std::string>& names) {
  Experiment wider = experiment;
  std::vector<std::string> added;
  for (const std::string& name : names) {
    if (axis_of(wider, name) == nullptr && can_take(experiment, name)) {
      const job::JobField* field = training::find_field(name);
      const job::FieldValue usual = field->value(job::JobSpec{});
      wider.axes.insert(wider.axes.begin(), Axis(name, field->help, {usual}, {usual}));
      added.push_back(name);
    }
  }
  if (!added.empty()) {
    wider.open = [added, open = experiment.open](const Point& point, const Settings& settings) {
      Settings further = settings;
      for (const std::string& name : added) {
        further.fields[name] = point[name];
      }
      return open(point, further);
    };
  }
  return wider;
}

std::string task_of(const Experiment& experiment, const std::vector<Point>& points) {
  std::string task = experiment.task;
  for (const Axis& axis : experiment.axes) {
    const std::string mark = "{" + axis.name + "}";
    std::vector<std::string> words;
    for (const job::FieldValue& value : values_of(points, axis.name)) {
      words.push_back(word_of(value));
    }
    for (std::size_t at = task.find(mark); at != std::string::npos; at = task.find(mark, at + 1)) {
      task.replace(at, mark.size(), listing(words));
    }
  }
  return task;
}

}  // namespace baton::lab
