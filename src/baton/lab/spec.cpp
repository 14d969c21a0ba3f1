#include "baton/lab/spec.h"

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/toml.h"
#include "baton/lab/sweep.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

job::FieldValue to_value(const toml::node& node, std::string_view name) {
  if (const auto text = node.value_exact<std::string>()) {
    return *text;
  }
  if (const auto whole = node.value_exact<std::int64_t>()) {
    return *whole;
  }
  if (const auto real = node.value_exact<double>(); real && std::isfinite(*real)) {
    return *real;
  }
  throw usage_error("'{}' in the spec must be a text or a finite number", name);
}

std::string text_of(const toml::table& table, std::string_view name, std::string otherwise) {
  const toml::node* node = table.get(name);
  if (node == nullptr) {
    return otherwise;
  }
  if (const auto text = node->value_exact<std::string>()) {
    return *text;
  }
  throw usage_error("'{}' in the spec must be a text", name);
}

const toml::table& table_of(const toml::table& root, std::string_view name) {
  const toml::node* node = root.get(name);
  if (node == nullptr || !node->is_table()) {
    throw usage_error("the spec has no table [{}]", name);
  }
  return *node->as_table();
}

/// The fields that all points share.
job::JobSpec job_of(const toml::table& root) {
  job::JobSpec shared;
  if (root.contains("job")) {
    for (const auto& [key, node] : table_of(root, "job")) {
      job::set_field(shared, key.str(), to_value(node, key.str()));
    }
  }
  return shared;
}

/// The values of some of the axes in the row to compare with.
Point baseline_of(const toml::table& root, const std::vector<Axis>& axes) {
  Point baseline;
  if (!root.contains("baseline")) {
    return baseline;
  }
  for (const auto& [key, node] : table_of(root, "baseline")) {
    const std::string name = axis_of_field(key.str(), {}).name;
    const job::FieldValue value = to_value(node, key.str());
    const auto axis = std::find_if(axes.begin(), axes.end(), [&](const Axis& one) { return one.name == name; });
    if (axis == axes.end()) {
      throw usage_error("the baseline of the spec names '{}', which is not one of its axes", key.str());
    }
    const auto number = [](const job::FieldValue& one) {
      const auto* whole = std::get_if<std::int64_t>(&one);
      const auto* real = std::get_if<double>(&one);
      return whole != nullptr ? std::optional(static_cast<double>(*whole)) : real != nullptr ? std::optional(*real) : std::nullopt;
    };
    const auto found = std::find_if(axis->quick.begin(), axis->quick.end(), [&](const job::FieldValue& one) {
      return one == value || (number(one) && number(one) == number(value));  // 1 is 1.0
    });
    if (found == axis->quick.end()) {
      throw usage_error("the baseline of the spec has {} {}, which is not one of that axis's values", key.str(), word_of(value));
    }
    baseline.set(name, *found);
  }
  return baseline;
}

}  // namespace

Experiment parse_spec(std::string_view toml_text, const std::string& id) {
  const toml::table root = parse_toml(toml_text, "the spec");
  for (const auto& [key, node] : root) {
    if (key != "title" && key != "question" && key != "job" && key != "axes" && key != "baseline") {
      throw usage_error("the spec has '{}', but a spec has title, question, [job], [axes] and [baseline]", key.str());
    }
  }
  Sweep sweep{.id = id, .title = text_of(root, "title", id), .question = text_of(root, "question", "")};
  const job::JobSpec shared = job_of(root);
  std::int64_t points = 1;
  for (const auto& [key, node] : table_of(root, "axes")) {
    Axis axis = axis_of_field(key.str(), {});
    if (std::any_of(sweep.axes.begin(), sweep.axes.end(), [&](const Axis& other) { return other.name == axis.name; })) {
      throw usage_error("the spec has the axis '{}' twice", axis.name);
    }
    if (!node.is_array() || node.as_array()->empty()) {
      throw usage_error("axis '{}' of the spec must be a list of values, as [1, 2, 4]", key.str());
    }
    for (const toml::node& value : *node.as_array()) {
      axis.quick.push_back(to_value(value, key.str()));
    }
    axis.full = axis.quick;
    points *= static_cast<std::int64_t>(axis.quick.size());
    if (points > most_points) {
      throw usage_error("the spec asks for more than {} points", most_points);
    }
    sweep.axes.push_back(std::move(axis));
  }
  if (sweep.axes.empty()) {
    throw usage_error("the spec has no axis to sweep: write one under [axes]");
  }
  sweep.baseline = baseline_of(root, sweep.axes);
  sweep.open = [shared](const Point& point, const Settings& settings) {
    return measure_training(spec_at(shared, point), settings, {.timeline = point.text()});
  };
  return to_experiment(std::move(sweep));
}

std::vector<std::pair<std::string, std::string>> spec_job(std::string_view toml) {
  const job::JobSpec shared = job_of(parse_toml(toml, "the spec"));
  std::vector<std::pair<std::string, std::string>> given;
  for (const job::JobField& field : training::job_fields()) {
    if (field.given(shared)) {
      given.emplace_back(field.name, field.text(shared));
    }
  }
  return given;
}

}  // namespace baton::lab
