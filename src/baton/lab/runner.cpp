#include "baton/lab/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/exec/clock.h"
#include "baton/lab/bystanders.h"
#include "baton/lab/crowding.h"
#include "baton/lab/phrases.h"
#include "baton/lab/pulse.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

/// "mlp:dim=8,depth=2, batch 64": the values that a row has of these axes.
std::string describe(const Json& row, const std::vector<std::string>& axes) {
  std::string text;
  for (const std::string& axis : axes) {
    const Json& value = row[axis];
    text += (text.empty() ? "" : ", ") + (value.is_string() ? word_of(value) : axis + " " + word_of(value));
  }
  return text;
}

/// The axes with several values that the experiment does not compare by itself, since its presets have one value of each. What
/// is derived and found is of rows that agree in them.
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
                                              std::vector<Json>& rows) {
  auto shown = std::make_shared<Experiment>(experiment);
  std::vector<Column> columns;
  for (const std::string& axis : axes) {
    const bool known = std::any_of(shown->columns.begin(), shown->columns.end(),
                                   [&](const Column& column) { return column.key == axis; });
    if (!known) {
      columns.push_back({axis, axis,
                         std::all_of(rows.begin(), rows.end(), [&](const Json& row) { return row[axis].is_number(); })
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
    for (Json& row : rows) {
      if (plot.series != apart[0]) {
        row[plot.series] = describe(row, apart) + (row.contains(series) ? ", " + word_of(row[series]) : "");
      }
    }
  }
  return shown;
}

/// So many points are open side by side at most, and fewer where their memory would take more than half the machine's.
constexpr std::size_t open_at_once = 8;
constexpr int rounds_a_point = 3;

}  // namespace

std::vector<Json> measure(const Experiment& experiment, const std::vector<Point>& points, const Settings& settings,
                          const std::map<std::string, Json>& known, const Keep& keep, const Progress& progress) {
  struct Open {
    std::size_t index;
    std::unique_ptr<Measurement> measurement;
    Nanoseconds spent;
    int rounds = 0;
    double others = 0;  // what others have used of the cores, over all rounds
  };
  std::vector<Json> records(points.size());
  Settings here = settings;
  std::vector<std::size_t> todo;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].contains("devices") && points[i]["devices"].is_number_integer()) {
      here.most_devices = std::max(here.most_devices, points[i]["devices"].get<std::int64_t>());
    }
    const auto found = known.find(points[i].dump());
    if (found != known.end()) {
      records[i] = found->second;
    } else {
      todo.push_back(i);
    }
  }
  std::size_t finished = points.size() - todo.size();
  bool going = true;
  std::size_t next = 0;
  while (next < todo.size() && going) {
    std::vector<Open> open;
    Bytes held;
    for (; next < todo.size() && open.size() < open_at_once; ++next) {
      const std::size_t i = next;
      const Point& point = points[todo[i]];
      try {
        std::unique_ptr<Measurement> measurement = experiment.open(point, here);
        held += measurement->memory();
        if (!open.empty() && held.count > settings.machine.memory.count / 2) {
          break;  // this one waits for the others to be closed
        }
        open.push_back({todo[i], std::move(measurement), Nanoseconds(0)});
      } catch (const Stopped&) {
        going = false;
        break;
      } catch (const Error& error) {
        records[todo[i]] = {{"reason", error.what()}};
        keep(point, records[todo[i]], true);
        ++finished;
      }
    }
    const Nanoseconds slice(settings.time_limit.count / rounds_a_point);
    while (!open.empty() && going) {
      for (Open& entry : open) {
        const Point& point = points[entry.index];
        const Nanoseconds start = exec::now();
        const Bystanders bystanders;
        bool final = true;
        Json record;
        try {
          entry.measurement->round(slice);
          entry.spent += exec::now() - start;
          ++entry.rounds;
          entry.others += bystanders.share().value_or(0);
          const bool stable = entry.rounds > 1 && entry.measurement->stable(settings.uncertainty);
          final = stable || entry.spent >= settings.time_limit || entry.rounds >= 2 * rounds_a_point;
          record = entry.measurement->record();
          record["stopped"] = !final                               ? "not finished"
                              : stable                             ? "stable"
                              : entry.spent >= settings.time_limit ? "time limit"
                                                                   : "rounds";
          record["rounds"] = entry.rounds;
          if (settings.cluster.empty()) {  // what is simulated does not depend on this machine's pulse
            record["pulse_gflops"] = pulse_gflops();
            record["others_share"] = entry.others / entry.rounds;
          }
        } catch (const Stopped&) {
          going = false;  // what the rounds before have left stands
          break;
        } catch (const Error& error) {
          record = {{"reason", error.what()}};
        }
        records[entry.index] = record;
        keep(point, record, final);
        if (final) {
          entry.measurement.reset();
          ++finished;
        }
        const double part = final ? 0 : std::min(1.0, static_cast<double>(entry.rounds) / rounds_a_point);
        const double done = (static_cast<double>(finished) + part) / static_cast<double>(points.size());
        if (progress && !progress(std::min(done, 1.0), fmt::format("{} {}", experiment.id, to_words(point)))) {
          going = false;
          break;
        }
      }
      std::erase_if(open, [](const Open& entry) { return entry.measurement == nullptr; });
    }
  }
  return records;
}

Result conclude(std::shared_ptr<const Experiment> which, const std::vector<Point>& points, std::vector<Json> records,
                std::string command, Preset preset) {
  const Experiment& experiment = *which;
  auto told = std::make_shared<Experiment>(experiment);
  told->task = task_of(experiment, points);
  Result result{.experiment = told, .command = std::move(command), .preset = preset};
  const std::vector<std::string> axes = group_axes(experiment, points);
  struct Group {
    std::string name;
    Point point;
    std::vector<Json> rows;
    std::vector<std::string> answers;
    std::vector<std::string> details;
  };
  std::vector<Group> groups;
  std::vector<Json> refused;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (records[i].is_null()) {
      continue;
    }
    const std::string name = describe(points[i], axes);
    if (records[i].contains("timeline") && !records[i]["timeline"].is_null()) {
      result.timelines.push_back(records[i]["timeline"]);
      if (records[i].value("oversubscribed", false)) {
        result.timelines.back()["oversubscribed"] = true;
      }
      if (!name.empty()) {
        Json& label = result.timelines.back()["label"];
        label = name + ": " + word_of(label);
      }
    }
    records[i].erase("timeline");
    Json row = points[i];
    row.update(records[i]);
    if (row.contains("reason")) {
      refused.push_back(std::move(row));
      continue;
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.name == name; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {name, points[i], {}, {}, {}});
    }
    group->rows.push_back(std::move(row));
  }
  for (Group& group : groups) {
    if (experiment.derive) {
      experiment.derive(group.rows);
    }
    for (const Question& question : experiment.questions) {
      group.answers.push_back(question.answer ? simulated_once(question.answer(group.rows)) : "");
    }
    group.details = experiment.details ? experiment.details(group.rows) : std::vector<std::string>();
    for (Json& row : group.rows) {
      for (const std::string& axis : axes) {
        row[axis] = group.point[axis];  // which what is derived need not have kept
      }
      result.rows.push_back(std::move(row));
    }
  }
  for (std::size_t q = 0; q < experiment.questions.size(); ++q) {
    const Question& question = experiment.questions[q];
    const bool alike = std::all_of(groups.begin(), groups.end(),
                                   [&](const Group& group) { return group.answers[q] == groups.front().answers[q]; });
    std::string text = alike && !groups.empty() ? groups.front().answers[q] : "";
    for (const Group& group : groups) {
      if (!alike && !group.answers[q].empty()) {
        text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", group.name, group.answers[q]);
      }
    }
    result.answers.push_back({question.id, question.text, std::move(text)});
  }
  result.trained = trained_line(result.rows);
  std::vector<std::string> common;  // what holds for every group is said once
  const auto everywhere = [&](const std::string& sentence) {
    return std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
      return std::find(group.details.begin(), group.details.end(), sentence) != group.details.end();
    });
  };
  for (const Group& group : groups) {
    for (const std::string& sentence : group.details) {
      if (!everywhere(sentence)) {
        result.details.push_back(group.name + ": " + sentence);
      } else if (&group == &groups.front()) {
        common.push_back(sentence);
      }
    }
  }
  result.details.insert(result.details.end(), common.begin(), common.end());
  for (std::string& sentence : crowding_findings(result.rows)) {
    result.details.push_back(std::move(sentence));
  }
  if (std::string sentence = bystanders_finding(result.rows); !sentence.empty()) {
    result.details.push_back(std::move(sentence));
  }
  if (!axes.empty()) {
    result.experiment = show_groups(*told, axes, result.rows);
  }
  std::vector<std::pair<std::string, std::int64_t>> reasons;
  for (const Json& row : refused) {
    const std::string reason = row["reason"].get<std::string>();
    const auto found = std::find_if(reasons.begin(), reasons.end(), [&](const auto& entry) { return entry.first == reason; });
    if (found == reasons.end()) {
      reasons.emplace_back(reason, 1);
    } else {
      ++found->second;
    }
  }
  for (const auto& [reason, count] : reasons) {
    result.details.push_back(fmt::format("{} point{} could not be measured here: {}.", count, count == 1 ? "" : "s", reason));
  }
  result.rows.insert(result.rows.end(), refused.begin(), refused.end());
  return result;
}

namespace {

/// Whether what printers take from any row is of the kind that it should be.
bool is_sound(const Json& record) {
  const auto suits = [&](const char* key, bool (*kind)(const Json&)) { return !record.contains(key) || kind(record[key]); };
  const auto is_text = [](const Json& value) { return value.is_string(); };
  const auto is_truth = [](const Json& value) { return value.is_boolean(); };
  const auto is_number = [](const Json& value) { return value.is_number(); };
  return suits("reason", is_text) && suits("origin", is_text) && suits("oversubscribed", is_truth) && suits("emulated", is_truth) &&
         suits("pulse_gflops", is_number) && suits("others_share", is_number) &&
         suits("timeline", [](const Json& value) { return value.is_null() || value.is_object(); });
}

}  // namespace

Result conclude_kept(std::shared_ptr<const Experiment> experiment, const std::vector<Point>& points, std::vector<Json> records,
                     std::string command, Preset preset) {
  const std::string id = experiment->id;
  const auto damaged = [&](const std::exception& why) {
    return usage_error("the results of {} are damaged, or of another version of baton: {}", id, why.what());
  };
  try {
    for (const Json& record : records) {
      check(record.is_null() || is_sound(record), "a record holds something of another kind than it should");
    }
    return conclude(std::move(experiment), points, std::move(records), std::move(command), preset);
  } catch (const Json::exception& error) {
    throw damaged(error);
  } catch (const std::logic_error& error) {
    throw damaged(error);
  }
}

}  // namespace baton::lab
