#include "baton/lab/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/lab/bystanders.h"
#include "baton/lab/crowding.h"
#include "baton/lab/instances.h"
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

/// At most this many points take turns; a run that is killed loses what it had of those.
constexpr std::size_t interleaved = 32;
/// Of a point's time limit, what its instances measure; the rest is for setting them up.
constexpr double measured_share = 0.7;
/// A precise run gives a point that scatters this many times its limit at most.
constexpr std::int64_t precise_patience = 120;

}  // namespace

namespace {

constexpr const char* refused_point = "refused";

/// A point of a batch, and what its instances gave so far.
struct Entry {
  std::size_t index;  // of the point
  std::vector<Json> records;
  std::vector<double> times;
  Nanoseconds spent;
  CoreTime core_time;
  Json merged;
  bool once = false;    // one instance must do
  std::string stopped;  // empty: it goes on
};

/// Opens a fresh instance of the point, measures it and closes it.
void measure_instance(const Experiment& experiment, const Point& point, Settings settings, Nanoseconds slice, Entry& entry) {
  const Nanoseconds start = now();
  settings.instance = static_cast<int>(entry.records.size());
  const std::unique_ptr<Measurement> instance = experiment.open(point, settings);
  const Bystanders bystanders;
  instance->round(slice);
  if (const std::optional<CoreTime> used = bystanders.used()) {
    entry.core_time += *used;
  }
  entry.records.push_back(instance->record());
  entry.once = instance->once();
  entry.spent += now() - start;
  const Json& record = entry.records.back();
  if (record.contains("time_per_step_ns") && record["time_per_step_ns"].is_number() && record["time_per_step_ns"] > 0) {
    entry.times.push_back(record["time_per_step_ns"].get<double>());
  }
  entry.merged = merge_instances(entry.records);
  if (settings.cluster.empty()) {  // what is simulated does not depend on this machine's pulse
    entry.merged["pulse_gflops"] = pulse_gflops();
    if (const std::optional<double> share = entry.core_time.share()) {
      entry.merged["others_share"] = *share;
    }
  }
}

/// Why a point needs no further instance; empty if it needs one.
std::string done_because(const Entry& entry, const Settings& settings) {
  const std::size_t count = entry.records.size();
  if (!settings.cluster.empty()) {
    return "simulated";
  }
  if (entry.once) {
    return "once";
  }
  if (settings.precise) {
    return count >= most_precise_instances                                                                         ? "instances"
           : count >= least_precise_instances && entry.spent.count >= precise_patience * settings.time_limit.count ? "time limit"
                                                                                                                   : "";
  }
  return count >= usual_instances                                                             ? "instances"
         : count >= least_instances && 2 * entry.spent.count >= 3 * settings.time_limit.count ? "time limit"
                                                                                              : "";
}

/// By point that could be measured, then by round.
std::vector<std::vector<double>> times_of(const std::vector<Entry>& batch) {
  std::vector<std::vector<double>> times;
  for (const Entry& entry : batch) {
    if (!entry.times.empty()) {
      times.push_back(entry.times);
    }
  }
  return times;
}

/// In which order the points of a batch have their turn: another one in each round, and every second round the reverse of the one
/// before it, so that neither drift nor what the point before left in the caches favours any.
class Turns {
 public:
  explicit Turns(std::size_t count) : order_(count) { std::iota(order_.begin(), order_.end(), std::size_t{0}); }

  const std::vector<std::size_t>& of_round(std::size_t round) {
    if (round % 2 == 1) {
      std::reverse(order_.begin(), order_.end());
    } else if (round > 0) {
      for (std::size_t i = order_.size(); i > 1; --i) {
        std::swap(order_[i - 1], order_[random_() % i]);
      }
    }
    return order_;
  }

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{17};
};

/// A name that no other batch has, of this run or another.
std::string batch_name(std::size_t first) {
  static const std::int64_t begun = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{:016x}", Hash(fmt::format("{} {} {} {}", begun, getpid(), now().count, first)).value());
}

}  // namespace

std::vector<Json> measure(const Experiment& experiment, const std::vector<Point>& points, const Settings& settings,
                          const std::map<std::string, Json>& known, const Keep& keep, const Progress& progress) {
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
  const Nanoseconds slice(static_cast<std::int64_t>(measured_share * static_cast<double>(settings.time_limit.count)) /
                          static_cast<std::int64_t>(usual_instances));
  const std::size_t expected = !settings.cluster.empty() ? 1 : settings.precise ? least_precise_instances : usual_instances;
  auto finished = static_cast<double>(points.size() - todo.size());
  double shown = 0;
  bool going = true;
  for (std::size_t first = 0; first < todo.size() && going; first += interleaved) {
    std::vector<Entry> batch;
    for (std::size_t i = first; i < std::min(todo.size(), first + interleaved); ++i) {
      batch.push_back(
          {.index = todo[i], .records = {}, .times = {}, .spent = {}, .core_time = {}, .merged = {}, .once = false, .stopped = {}});
    }
    Turns turns(batch.size());
    const auto left = [&] {
      return std::any_of(batch.begin(), batch.end(), [](const Entry& entry) { return entry.stopped.empty(); });
    };
    for (std::size_t round = 0; going && left(); ++round) {
      for (const std::size_t turn : turns.of_round(round)) {
        Entry& entry = batch[turn];
        const Point& point = points[entry.index];
        if (!entry.stopped.empty()) {
          continue;
        }
        const auto reached = [&] {
          double sum = finished;
          for (const Entry& one : batch) {
            sum += !one.stopped.empty()
                       ? 1
                       : 0.99 * std::min(1.0, static_cast<double>(one.records.size()) / static_cast<double>(expected));
          }
          return sum;
        };
        const auto show = [&](double done) {
          shown = std::max(shown, std::min(1.0, done / static_cast<double>(points.size())));
          return !progress || progress(shown, fmt::format("{} {}", experiment.id, to_words(point)));
        };
        // Only a measurement that is not repeated takes so long that it reports its own progress: its point is then done.
        here.within = [&show, before = reached()](double share) { show(before + share); };
        try {
          measure_instance(experiment, point, here, slice, entry);
          entry.stopped = done_because(entry, settings);
          entry.merged["stopped"] = "not finished";
        } catch (const Stopped&) {
          going = false;  // what the instances before have left stands
          break;
        } catch (const Error& error) {
          entry.merged = {{"reason", error.what()}};
          entry.stopped = refused_point;
        }
        records[entry.index] = entry.merged;
        if (entry.stopped.empty() || entry.stopped == refused_point) {
          Json kept = entry.merged;
          kept.erase("timeline");  // until it is the final one
          keep(point, kept, entry.stopped == refused_point);
        }
        if (!show(reached())) {
          going = false;
          break;
        }
      }
      if (settings.precise && precise_enough(times_of(batch))) {
        for (Entry& entry : batch) {
          entry.stopped = entry.stopped.empty() ? "precise" : entry.stopped;
        }
      }
    }
    if (!going) {
      break;
    }
    const double drift = drift_of(times_of(batch));
    const std::string name = batch_name(first);
    for (Entry& entry : batch) {
      if (entry.stopped == refused_point) {
        continue;
      }
      entry.merged["stopped"] = entry.stopped;
      if (settings.cluster.empty()) {
        entry.merged["batch_name"] = name;
        entry.merged["drift"] = drift;
      }
      records[entry.index] = entry.merged;
      keep(points[entry.index], entry.merged, true);
    }
    finished += static_cast<double>(batch.size());
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

bool is_sound(const Json& record) {
  const auto suits = [&](const char* key, bool (*kind)(const Json&)) { return !record.contains(key) || kind(record[key]); };
  const auto is_text = [](const Json& value) { return value.is_string(); };
  const auto is_truth = [](const Json& value) { return value.is_boolean(); };
  const auto is_number = [](const Json& value) { return value.is_number(); };
  const auto is_list = [](const Json& value) { return value.is_array(); };
  return suits("reason", is_text) && suits("origin", is_text) && suits("oversubscribed", is_truth) && suits("emulated", is_truth) &&
         suits("pulse_gflops", is_number) && suits("others_share", is_number) && suits("instances", is_number) &&
         suits("instance_times_ns", is_list) && suits("drift", is_number) && suits("batch_name", is_text) &&
         suits("timeline", [](const Json& value) { return value.is_null() || value.is_object(); });
}

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
    Result result = conclude(std::move(experiment), points, std::move(records), std::move(command), preset);
    for (const Plot& plot : result.experiment->plots) {  // what they are drawn from is in the records too
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
