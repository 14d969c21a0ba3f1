#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "baton/base/error.h"
#include "baton/job/step_json.h"
#include "baton/lab/part_slowdown.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "baton/measure/other_processes.h"

/// The conclusions from records: rows, answers and further sentences.
namespace baton::lab {
namespace {

/// "mlp:dim=8,depth=2, batch 64": the values that a row has of these axes.
std::string describe(const Record& row, const std::vector<std::string>& axes) {
  std::string all;
  for (const std::string& axis : axes) {
    all += (all.empty() ? "" : ", ") + (row.at(axis).is_string() ? "" : axis + " ") + text(row, axis);
  }
  return all;
}

/// The axes with several values that the experiment does not compare by itself, since its presets have one value of each. Columns
/// and findings are those of rows that agree in them.
std::vector<std::string> group_axes(const Experiment& experiment, const std::vector<Point>& points) {
  std::vector<std::string> axes;
  for (const Axis& axis : experiment.axes) {
    if (axis.quick.size() <= 1 && axis.full.size() <= 1 && values_of(points, axis.name).size() > 1) {
      axes.push_back(axis.name);
    }
  }
  return axes;
}

/// The experiment with the groups in its table and told apart in its plots.
std::shared_ptr<const Experiment> show_groups(const Experiment& experiment, const std::vector<std::string>& axes,
                                              std::vector<Record>& rows) {
  auto shown = std::make_shared<Experiment>(experiment);
  std::vector<Column> columns;
  for (const std::string& axis : axes) {
    const bool known = std::any_of(shown->columns.begin(), shown->columns.end(),
                                   [&](const Column& column) { return column.key == axis; });
    if (!known) {
      columns.push_back({axis, axis,
                         std::all_of(rows.begin(), rows.end(), [&](const Record& row) { return row.at(axis).is_number(); })
                             ? Format::number
                             : Format::text});
    }
  }
  shown->columns.insert(shown->columns.begin(), columns.begin(), columns.end());
  // Points and curves of a plot's own do not tell groups apart.
  std::erase_if(shown->plots, [](const Plot& plot) { return static_cast<bool>(plot.points); });
  for (Plot& plot : shown->plots) {
    plot.curves = nullptr;
    std::vector<std::string> apart;
    std::copy_if(axes.begin(), axes.end(), std::back_inserter(apart),
                 [&](const std::string& axis) { return axis != plot.x && axis != plot.series; });
    if (apart.empty()) {
      continue;
    }
    const std::string series = std::exchange(
        plot.series, fmt::format("{}{}{}", fmt::join(apart, "_"), plot.series.empty() ? "" : "_", plot.series));
    for (Record& row : rows) {
      if (plot.series != apart[0]) {
        row.put(plot.series, describe(row, apart) + (row.find(series) != nullptr ? ", " + text(row, series) : ""));
      }
    }
  }
  return shown;
}

/// Rows that agree in the axes which an experiment does not compare, and its sentences on them.
struct Group {
  std::string name;
  Point point;
  std::vector<Record> rows;
  std::vector<std::string> answers = {};  // by question
  std::vector<std::string> details = {};
};

/// Takes the timeline out of a record, with the name of its group.
void take_timeline(Record& record, const std::string& group, std::vector<Record>& timelines) {
  if (Json kept = record.value(key::timeline, Json()); !kept.is_null()) {
    Record& timeline = timelines.emplace_back(std::move(kept));
    if (record.value(key::oversubscribed, false)) {
      timeline.set(key::oversubscribed, true);
    }
    if (!group.empty()) {
      timeline.set(key::label, group + ": " + text(timeline, key::label));
    }
  }
  record.erase(key::timeline);
}

void add_to_group(std::vector<Group>& groups, const std::string& name, const Point& point, Record row) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.name == name; });
  if (group == groups.end()) {
    group = groups.insert(groups.end(), {name, point, {}});
  }
  group->rows.push_back(std::move(row));
}

/// Derives the columns of a group's rows, and the experiment's findings on them.
void find_answers(const Experiment& experiment, const std::vector<std::string>& axes, Group& group) {
  if (experiment.derive) {
    experiment.derive(group.rows);
  }
  for (const Question& question : experiment.questions) {
    group.answers.push_back(question.answer ? simulated_once(question.answer(group.rows)) : "");
  }
  group.details = experiment.details ? experiment.details(group.rows) : std::vector<std::string>();
  for (Record& row : group.rows) {
    for (const std::string& axis : axes) {
      row.put(axis, job::to_json(group.point[axis]));  // an axis that derived rows need not have kept
    }
  }
}

/// The answer of all groups if they agree, otherwise a line per group.
std::string joint_answer(const std::vector<Group>& groups, std::size_t question) {
  const bool alike = std::all_of(groups.begin(), groups.end(),
                                 [&](const Group& group) { return group.answers[question] == groups.front().answers[question]; });
  std::string text = alike && !groups.empty() ? groups.front().answers[question] : "";
  for (const Group& group : groups) {
    if (!alike && !group.answers[question].empty()) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", group.name, group.answers[question]);
    }
  }
  return text;
}

/// The details of the groups, each after the name of its group; those that hold for every group come last, once.
std::vector<std::string> joint_details(const std::vector<Group>& groups) {
  std::vector<std::string> list;
  std::vector<std::string> common;
  const auto everywhere = [&](const std::string& sentence) {
    return std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
      return std::find(group.details.begin(), group.details.end(), sentence) != group.details.end();
    });
  };
  for (const Group& group : groups) {
    for (const std::string& sentence : group.details) {
      if (!everywhere(sentence)) {
        list.push_back(group.name + ": " + sentence);
      } else if (&group == &groups.front()) {
        common.push_back(sentence);
      }
    }
  }
  list.insert(list.end(), common.begin(), common.end());
  return list;
}

/// "2 points could not be measured here: ...": a sentence per reason.
std::vector<std::string> refusals(const std::vector<Record>& refused) {
  std::vector<std::pair<std::string, std::int64_t>> reasons;
  for (const Record& row : refused) {
    const std::string reason = row[key::reason];
    const auto found = std::find_if(reasons.begin(), reasons.end(), [&](const auto& entry) { return entry.first == reason; });
    if (found == reasons.end()) {
      reasons.emplace_back(reason, 1);
    } else {
      ++found->second;
    }
  }
  std::vector<std::string> list;
  for (const auto& [reason, count] : reasons) {
    list.push_back(fmt::format("{} point{} could not be measured here: {}.", count, count == 1 ? "" : "s", reason));
  }
  return list;
}

void append(std::vector<std::string>& list, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

}  // namespace

Result conclude(std::shared_ptr<const Experiment> which, const std::vector<Point>& points, std::vector<Record> records,
                std::string command, Preset preset) {
  const Experiment& experiment = *which;
  auto told = std::make_shared<Experiment>(experiment);
  told->task = task_of(experiment, points);
  Result result{.experiment = told, .command = std::move(command), .preset = preset};
  const std::vector<std::string> axes = group_axes(experiment, points);
  std::vector<Group> groups;
  std::vector<Record> refused;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (records[i].empty()) {
      continue;
    }
    Record row(points[i].json());
    const std::string name = describe(row, axes);
    take_timeline(records[i], name, result.timelines);
    row.update(records[i]);
    if (row.has(key::reason)) {
      refused.push_back(std::move(row));
    } else {
      add_to_group(groups, name, points[i], std::move(row));
    }
  }
  for (Group& group : groups) {
    find_answers(experiment, axes, group);
    std::move(group.rows.begin(), group.rows.end(), std::back_inserter(result.rows));
  }
  for (std::size_t q = 0; q < experiment.questions.size(); ++q) {
    const bool none = groups.empty() && !refused.empty();
    result.answers.push_back(
        {experiment.questions[q].id, experiment.questions[q].text,
         none ? fmt::format("Nothing could be measured: {}.", text(refused.front(), key::reason)) : joint_answer(groups, q)});
  }
  result.trained = trained_line(result.rows);
  if (std::string sentence = few_instances_finding(result.rows); !sentence.empty()) {
    result.details.push_back(std::move(sentence));
  }
  append(result.details, joint_details(groups));
  append(result.details, part_slowdown_findings(result.rows));
  if (std::string sentence = other_processes_finding(result.rows); !sentence.empty()) {
    result.details.push_back(std::move(sentence));
  }
  if (!axes.empty()) {
    result.experiment = show_groups(*told, axes, result.rows);
  }
  append(result.details, refusals(refused));
  result.rows.insert(result.rows.end(), refused.begin(), refused.end());
  return result;
}

bool is_sound(const Record& record) {
  const auto suits = [&](const std::string& name, bool (*kind)(const Json&)) {
    const Json* value = record.find(name);
    return value == nullptr || kind(*value);
  };
  const auto is_text = [](const Json& value) { return value.is_string(); };
  const auto is_truth = [](const Json& value) { return value.is_boolean(); };
  const auto is_number = [](const Json& value) { return value.is_number(); };
  const auto is_list = [](const Json& value) { return value.is_array(); };
  const auto is_object_or_null = [](const Json& value) { return value.is_null() || value.is_object(); };
  return suits(key::reason, is_text) && suits(key::origin, is_text) && suits(key::oversubscribed, is_truth) &&
         suits(key::emulated, is_truth) && suits(key::emulated_products, is_text) && suits(key::arithmetic, is_text) &&
         suits(key::core_peak_gflops, is_number) && suits(key::others_share, is_number) && suits(key::instances, is_number) &&
         suits(key::instance_times_ns, is_list) && suits(key::drift, is_number) && suits(key::batch_name, is_text) &&
         suits(key::timeline, is_object_or_null) && suits(key::trained, is_object_or_null);
}

Result conclude_kept(std::shared_ptr<const Experiment> experiment, const std::vector<Point>& points, std::vector<Record> records,
                     std::string command, Preset preset) {
  const std::string id = experiment->id;
  const auto damaged = [&](const std::exception& why) {
    return usage_error("the results of {} are damaged, or of another version of baton: {}", id, why.what());
  };
  try {
    for (const Record& record : records) {
      check(is_sound(record), "a value in a record has the wrong type");
    }
    Result result = conclude(std::move(experiment), points, std::move(records), std::move(command), preset);
    for (const Plot& plot : result.experiment->plots) {  // their points are in the records too
      points_of(plot, result.rows);
      if (plot.curves) {
        plot.curves(result.rows);
      }
    }
    return result;
  } catch (const Json::exception& error) {
    throw damaged(error);
  } catch (const std::logic_error& error) {
    throw damaged(error);
  }
}

}  // namespace baton::lab
