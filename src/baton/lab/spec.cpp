#include "baton/lab/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/toml.h"
#include "baton/job/step_json.h"
#include "baton/lab/instances.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

constexpr std::int64_t most_points = 10'000;

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

/// Adds `speedup` over the first row that has the baseline's values and agrees in the other axes; over the first of all if there
/// is none.
void add_speedup_over(const Point& baseline, const std::vector<std::string>& axes, std::vector<Record>& rows) {
  std::vector<double> bases;
  for (const Record& row : rows) {
    const auto base = std::find_if(rows.begin(), rows.end(), [&](const Record& other) {
      return baseline != Point() && std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
               return text(other, axis) == (baseline.contains(axis) ? text(baseline, axis) : text(row, axis));
             });
    });
    bases.push_back(number(base == rows.end() ? rows.front() : *base, key::time_per_step_ns));
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].set(key::speedup, bases[r] / number(rows[r], key::time_per_step_ns));
  }
}

std::string name_of(const Record& row, const std::vector<std::string>& axes) {
  std::string out;
  for (const std::string& axis : axes) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", axis, text(row, axis));
  }
  return out;
}

/// Steps of different batches are compared by samples per second, others by their time.
bool by_samples(const std::vector<Record>& rows) { return values_of(rows, key::global_batch).size() > 1; }

bool is_faster(const Record& a, const Record& b, bool samples) {
  return samples ? number(a, key::samples_per_s) > number(b, key::samples_per_s)
                 : number(a, key::time_per_step_ns) < number(b, key::time_per_step_ns);
}

/// The row with its times per sample.
Record per_sample(Record row) {
  const double batch = std::max(1.0, number(row, key::global_batch));
  for (const job::Key<Nanoseconds> time : {key::time_per_step_ns, key::time_low_ns, key::time_high_ns}) {
    row.set_number(time, number(row, time) / batch);
  }
  std::vector<double> times = instance_times(row);
  for (double& time : times) {
    time /= batch;
  }
  row.set(key::instance_times_ns, times);
  return row;
}

std::string which_is_fastest(const std::vector<Record>& rows, const std::vector<std::string>& axes) {
  const bool samples = by_samples(rows);
  const auto order = [&](const Record& a, const Record& b) { return is_faster(a, b, samples); };
  const Record& fastest = *std::min_element(rows.begin(), rows.end(), order);
  const Record& slowest = *std::max_element(rows.begin(), rows.end(), order);
  const auto speed = [&](const Record& row) {
    return samples ? fmt::format("{:.0f} samples/s", number(row, key::samples_per_s)) : to_text(time_of(row)) + " per step";
  };
  if (rows.size() == 1) {
    return fmt::format("{}: {}{}.", name_of(fastest, axes), speed(fastest), origin_mark({fastest}));
  }
  const double ratio = samples ? number(fastest, key::samples_per_s) / number(slowest, key::samples_per_s)
                               : number(slowest, key::time_per_step_ns) / number(fastest, key::time_per_step_ns);
  const std::string between = fmt::format("{} has {}{} and {} has {}{}", name_of(fastest, axes), speed(fastest),
                                          origin_mark({fastest}), name_of(slowest, axes), speed(slowest), origin_mark({slowest}));
  std::vector<Record> compared;
  std::transform(rows.begin(), rows.end(), std::back_inserter(compared),
                 [&](const Record& row) { return samples ? per_sample(row) : row; });
  const auto at = [&](const Record& row) { return compared[static_cast<std::size_t>(&row - rows.data())]; };
  const findings::Difference difference = difference_among(at(fastest), at(slowest), compared);
  return difference.differ ? fmt::format("The fastest, {}, is {} times as fast as the slowest: {}.", name_of(fastest, axes),
                                         ratio_text(ratio), between)
                           : fmt::format("No difference beyond the noise shows: {}. The fastest and the slowest are {}.", between,
                                         noise_text(difference));
}

/// Strategies for several devices that ran on one, where they are all the same.
std::string on_one_device(const std::vector<Record>& rows) {
  std::vector<std::string> names;
  for (const Record& row : rows) {
    const std::string strategy = row.value(key::trained, {}).value(key::strategy, "single");
    if (row[key::device_list].size() == 1 && strategy != "single" &&
        std::find(names.begin(), names.end(), strategy) == names.end()) {
      names.push_back(strategy);
    }
  }
  return names.empty() ? ""
                       : fmt::format("On one device {} {} nothing to split: give several, as devices = \"cpu:2\" under [job].",
                                     listing(names), names.size() == 1 ? "has" : "have");
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  const auto order = [samples = by_samples(rows)](const Record& a, const Record& b) { return is_faster(a, b, samples); };
  std::vector<std::string> sentences{attribution(*std::min_element(rows.begin(), rows.end(), order), "The fastest")};
  if (std::string sentence = on_one_device(rows); !sentence.empty()) {
    sentences.insert(sentences.begin(), std::move(sentence));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment parse_spec(std::string_view toml_text, const std::string& id) {
  const toml::table root = parse_toml(toml_text, "the spec");
  for (const auto& [key, node] : root) {
    if (key != "title" && key != "question" && key != "job" && key != "axes" && key != "baseline") {
      throw usage_error("the spec has '{}', but a spec has title, question, [job], [axes] and [baseline]", key.str());
    }
  }
  Experiment experiment{
      .id = id, .part = "", .title = text_of(root, "title", id), .task = text_of(root, "question", ""), .questions = {}};
  const job::JobSpec shared = job_of(root);
  std::vector<std::string> names;
  std::int64_t points = 1;
  for (const auto& [key, node] : table_of(root, "axes")) {
    Axis axis = axis_of_field(key.str(), {});
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) {
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
    names.push_back(axis.name);
    experiment.columns.push_back({axis.name, axis.name, Format::text});
    experiment.axes.push_back(std::move(axis));
  }
  if (names.empty()) {
    throw usage_error("the spec has no axis to sweep: write one under [axes]");
  }
  const std::string question = experiment.task.empty() ? fmt::format("How does the step time depend on {}?", listing(names))
                                                       : experiment.task;
  experiment.task = fmt::format("A sweep over {}.", listing(names));
  experiment.questions = {{"", question, [names](const std::vector<Record>& rows) { return which_is_fastest(rows, names); }}};
  experiment.columns.push_back(time_column());
  experiment.columns.push_back({key::speedup, "speedup", Format::ratio});
  experiment.columns.push_back({key::samples_per_s, "samples/s", Format::integer});
  experiment.columns.push_back({key::exposed_ns, "exposed comm.", Format::time});
  experiment.columns.push_back({key::waiting_ns, "waiting", Format::time});
  experiment.columns.push_back({key::peak_bytes, "memory", Format::bytes});
  experiment.plots.push_back(
      time_plot(Plot::Type::bars, "Step time", names.back(), names.back(), names.size() > 1 ? names.front() : ""));
  experiment.open = [shared](const Point& point, const Settings& settings) {
    return measure_training(spec_at(shared, point), settings, {.timeline = point.text()});
  };
  experiment.derive = [names, baseline = baseline_of(root, experiment.axes)](std::vector<Record>& rows) {
    add_speedup_over(baseline, names, rows);
  };
  experiment.details = details;
  return experiment;
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
