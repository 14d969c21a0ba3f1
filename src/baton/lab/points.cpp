/// Points of an experiment: the values that its axes have by default and those that are set.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/job/step_json.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "baton/model/zoo.h"

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

/// Of these axes nothing below one can be measured, and is refused before anything is.
bool counts_something(std::string_view axis) {
  constexpr std::array<std::string_view, 6> names{key::devices.name, key::batch.name, key::dim.name,
                                                  key::depth.name,   key::size.name,  key::micro_batches.name};
  return std::find(names.begin(), names.end(), axis) != names.end();
}

/// Fields of a job that an experiment may be given beside its axes. The others say how work is split or where it runs, which is
/// what experiments are about.
constexpr std::array<std::string_view, 23> further_fields{"model",
                                                          "batch",
                                                          key::micro_batches.name,
                                                          "recompute",
                                                          "bucket_mb",
                                                          "first_bucket_mb",
                                                          "loss",
                                                          "optimizer",
                                                          "lr",
                                                          "momentum",
                                                          "weight_decay",
                                                          "precision",
                                                          "loss_scale",
                                                          "loss_scale_growth",
                                                          "link",
                                                          "memory",
                                                          "seed",
                                                          "samples",
                                                          "decay",
                                                          "lr_schedule",
                                                          "label_smoothing",
                                                          "clip",
                                                          "gradients"};
/// Those of them whose texts are not names: the field checks them.
constexpr std::array<std::string_view, 4> judged_fields{"link", "memory", "loss_scale", "lr_schedule"};

template <std::size_t size>
bool contains(const std::array<std::string_view, size>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

const Axis* axis_of(const Experiment& experiment, std::string_view name) {
  const auto found = std::find_if(experiment.axes.begin(), experiment.axes.end(),
                                  [&](const Axis& axis) { return set_name(axis.name) == name; });
  return found == experiment.axes.end() ? nullptr : &*found;
}

bool can_take(const Experiment& experiment, std::string_view name) {
  return experiment.trains && contains(further_fields, name) &&
         std::find(experiment.own_fields.begin(), experiment.own_fields.end(), name) == experiment.own_fields.end();
}

/// Refuses values that an axis cannot have, before anything runs.
void check_value(const Experiment& experiment, const Axis& axis, const job::FieldValue& value) {
  const std::string name = set_name(axis.name);
  const std::string where = fmt::format("axis {} of experiment {}", axis.name, experiment.id);
  if (axis.check) {
    axis.check(value);
    return;
  }
  const auto is_whole = [](const job::FieldValue& one) { return std::holds_alternative<std::int64_t>(one); };
  if (counts_something(name) && std::all_of(axis.quick.begin(), axis.quick.end(), is_whole)) {
    if (!is_whole(value) || std::get<std::int64_t>(value) <= 0) {
      throw usage_error("{} takes whole numbers above 0, but has '{}'", where, word_of(value));
    }
    return;
  }
  const auto is_number = [](const job::FieldValue& one) { return !std::holds_alternative<std::string>(one); };
  const job::JobField* field = training::find_field(name);
  const bool numeric = field != nullptr && field->numeric && contains(further_fields, name);
  if (std::all_of(axis.quick.begin(), axis.quick.end(), is_number) || numeric) {
    if (!is_number(value) || job::to_json(value).get<double>() < 0) {
      throw usage_error("{} takes numbers of at least 0, but has '{}'", where, word_of(value));
    }
    return;
  }
  if (name == "model") {
    model::parse_model(word_of(value));
    return;
  }
  if (contains(judged_fields, name)) {
    job::JobSpec spec;
    field->set(spec, value);
    return;
  }
  std::vector<std::string> names;
  for (const std::vector<job::FieldValue>* list : {&axis.quick, &axis.full}) {
    for (const job::FieldValue& one : *list) {
      names.push_back(word_of(one));
    }
  }
  if (field != nullptr && field->values) {
    const std::vector<std::string> more = field->values();
    names.insert(names.end(), more.begin(), more.end());
  }
  const std::string wanted = canonical(word_of(value));
  const bool known = std::any_of(names.begin(), names.end(), [&](const std::string& one) { return canonical(one) == wanted; });
  if (!known && !(name == "schedule" && job::is_schedule_file(word_of(value)))) {
    std::vector<std::string> once;
    for (const std::string& one : names) {
      if (std::find(once.begin(), once.end(), one) == once.end()) {
        once.push_back(one);
      }
    }
    throw unknown_name(axis.name, word_of(value), once);
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
      const job::FieldValue usual = training::find_field(name)->text(job::JobSpec{});
      wider.axes.insert(wider.axes.begin(), {name, training::find_field(name)->help, {usual}, {usual}});
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
