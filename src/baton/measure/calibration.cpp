#include "baton/measure/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <span>

#include "baton/base/cache_folder.h"
#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/hash.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/devices/devices.h"
#include "baton/exec/executor.h"
#include "baton/job/json.h"
#include "baton/measure/isolate.h"
#include "baton/measure/wake_up.h"
#include "baton/trace/analysis.h"

namespace baton::measure {
namespace {

constexpr Nanoseconds time_for_one(60'000'000);
constexpr std::int64_t most_copies = 64;
constexpr std::int64_t least_steps = 5;
/// More than the caches of today's GPUs.
constexpr Bytes gpu_cache(64 << 20);
constexpr Bytes most_kept(std::int64_t{16} << 20);
constexpr std::size_t most_values = 200'000;
constexpr std::uint64_t longest_time = 3'600'000'000'000;

std::filesystem::path calibration_folder() {
  const std::filesystem::path cache = cache_folder();
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  return !cache.empty() ? cache : error ? std::filesystem::path() : temporary / "baton";
}

/// The size of a task's operands and its workspace.
Bytes footprint(const plan::Plan& plan, TaskId id) {
  std::set<BufferId> touched(plan[id].reads.begin(), plan[id].reads.end());
  touched.insert(plan[id].writes.begin(), plan[id].writes.end());
  return plan::bytes_of(plan, std::vector<BufferId>(touched.begin(), touched.end())) + plan[id].workspace;
}

/// The number of copies that together touch as much as lies between two touches of the farthest operand.
std::int64_t copies_for(Bytes one, std::span<const Bytes> distances) {
  const Bytes farthest = distances.empty() ? Bytes(0) : *std::max_element(distances.begin(), distances.end());
  return std::clamp<std::int64_t>(farthest.count / std::max<std::int64_t>(1, one.count) + 1, 2, most_copies);
}

/// The times in a plan of nothing but copies: of one copy, and of the step in addition to its tasks.
struct Timing {
  Nanoseconds one;
  Nanoseconds step;
};

exec::RunResult run_for_a_while(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend) {
  exec::Executor executor(plan, cluster, backend, {}, nullptr, /*unread=*/true);
  const exec::RunResult first = executor.run({.steps = 3, .warmup = 2});
  const std::int64_t fit = time_for_one.count / std::max<std::int64_t>(1, first.step_times.back().count);
  return executor.run({.steps = std::clamp<std::int64_t>(fit, least_steps, 2000) + 1, .warmup = 1});
}

/// The mean without the twentieth at each end: a constant interruption of a core counts, as it does in a plan, and a single
/// disturbance does not.
Nanoseconds trimmed_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 20;
  const double sum = std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(cut),
                                     values.end() - static_cast<std::ptrdiff_t>(cut), 0.0);
  return Nanoseconds(std::llround(sum / static_cast<double>(values.size() - 2 * cut)));
}

/// From the trace: the time from one copy to the next, a mean over the copies of a step. `place` gives the moment of a copy that
/// counts.
template <typename Place>
Timing time_in_trace(const exec::RunResult& result, std::size_t rows, std::size_t columns, Place place) {
  std::vector<double> times;
  std::vector<Nanoseconds> rests;
  for (const trace::StepTrace& step : result.trace.steps) {
    for (std::size_t column = 0; column < columns; ++column) {
      const Nanoseconds all = place(step, rows - 1, column) - place(step, 0, column);
      times.push_back(static_cast<double>(all.count) / static_cast<double>(rows - 1));
    }
    Nanoseconds first = step.duration;
    Nanoseconds last;
    for (const trace::Event& event : step.events) {
      first = std::min(first, event.start);
      last = std::max(last, event.end);
    }
    rests.push_back(step.duration - (last - first));
  }
  return {trimmed_mean(std::move(times)), trace::spread(rests).median};
}

/// From the steps, because a traced one takes longer than others: the additional time of twice as many copies.
template <typename Isolate>
Timing time_in_steps(std::int64_t copies, Isolate isolate, const cluster::Cluster& cluster, const exec::Backend& backend) {
  const auto step_of = [&](std::int64_t count) {
    const exec::RunResult result = run_for_a_while(isolate(count), cluster, backend);
    return trace::spread(std::span(result.step_times).subspan(1)).median;
  };
  const Nanoseconds once = step_of(copies);
  const Nanoseconds one(std::max<std::int64_t>(0, (step_of(2 * copies) - once).count / copies));
  return {one, std::max(Nanoseconds(0), once - one * copies)};
}

bool on_gpus(const cluster::Cluster& cluster) { return cluster.devices()[0].gpu.has_value(); }

Timing time_task(const plan::Plan& plan, TaskId task, const std::vector<DeviceId>& devices, std::int64_t copies, const Turns& turns,
                 const cluster::Cluster& cluster, const exec::Backend& backend) {
  const auto isolate = [&](std::int64_t count) { return isolate_task(plan, task, devices, count, turns); };
  if (on_gpus(cluster)) {
    return time_in_steps(copies, isolate, cluster, backend);
  }
  return time_in_trace(run_for_a_while(isolate(copies), cluster, backend), static_cast<std::size_t>(copies), devices.size(),
                       [&](const trace::StepTrace& step, std::size_t row, std::size_t column) {
                         return step.events[row * devices.size() + column].start;
                       });
}

Timing time_meeting(const plan::Plan& plan, MeetingId meeting, std::int64_t copies, const Turns& turns,
                    const cluster::Cluster& cluster, const exec::Backend& backend) {
  const auto isolate = [&](std::int64_t count) { return isolate_meeting(plan, meeting, count, turns); };
  if (on_gpus(cluster)) {
    return time_in_steps(copies, isolate, cluster, backend);
  }
  const plan::Plan isolated = isolate(copies);
  return time_in_trace(run_for_a_while(isolated, cluster, backend), static_cast<std::size_t>(copies), 1,
                       [&](const trace::StepTrace& step, std::size_t row, std::size_t) {
                         return trace::ended_at(isolated, step, isolated.members(MeetingId(row))[0]);
                       });
}

/// Writes timings into a table: the time of each task, and at the end the median time of a step besides its tasks.
class TimeTableWriter {
 public:
  TimeTableWriter(cost::Times& times, bool again) : times_(times), again_(again) {}

  void take(const std::string& key, const Timing& timing) {
    times_[key] = timing.one;
    steps_.push_back(timing.step);
  }
  void finish() {
    if (!steps_.empty() && (again_ || !times_.contains(Calibration::step_key))) {
      times_[std::string(Calibration::step_key)] = trace::spread(steps_).median;
    }
  }

 private:
  cost::Times& times_;
  bool again_;
  std::vector<Nanoseconds> steps_;
};

/// The name of the hardware of the devices.
std::string describe(const cluster::Machine& machine, const cluster::Cluster& cluster) {
  if (const std::optional<cluster::GpuPart>& gpu = cluster.devices()[0].gpu) {
    return devices::find_gpus()[static_cast<std::size_t>(gpu->ordinal)].name;
  }
  return fmt::format("{}, {} core{}", machine.cpu, machine.cores.size(), machine.cores.size() == 1 ? "" : "s");
}

/// ", bf16 by amx", if processors differ in that.
std::string unit_of(const exec::Backend& backend) {
  const std::string unit = backend.arithmetic(DType::bf16);
  return unit.empty() ? "" : fmt::format(", bf16 by {}", unit);
}

constexpr std::string_view table_ending = " at work";
std::string table_name(std::size_t at_work) { return fmt::format("{}{}", at_work, table_ending); }

}  // namespace

Calibration::Calibration(const cluster::Machine& machine, const cluster::Cluster& cluster, const exec::Backend& backend)
    : machine_(fmt::format("{}, {} backend{}, baton {} by {}", describe(machine, cluster), backend.name(), unit_of(backend),
                           BATON_VERSION, BATON_COMPILER)),
      cache_(on_gpus(cluster) ? gpu_cache : machine.cache) {
  if (const std::filesystem::path folder = calibration_folder(); !folder.empty()) {
    file_ = folder / fmt::format("calibration-{:016x}.json", Hash(machine_).value());
  }
  std::error_code error;
  if (std::filesystem::exists(file_, error)) {
    try {
      tables_ = parse_calibration(read_file(file_, file_.string(), most_kept), machine_, created_);
    } catch (const Error&) {
      // It cannot be read: all tasks are measured again.
    }
  }
}

std::map<std::string, cost::Times> parse_calibration(std::string_view text, const std::string& machine, std::string& created) {
  std::map<std::string, cost::Times> tables;
  const job::Json kept = job::parse_json(text, most_values);
  if (!kept.is_object() || !kept.contains("machine") || kept["machine"] != machine || !kept.contains("times") ||
      !kept["times"].is_object()) {
    return tables;  // cut off, or another machine's: it is measured again
  }
  for (const auto& [name, times] : kept["times"].items()) {
    if (!name.ends_with(table_ending)) {
      continue;  // an entry of a version that kept tables by the memory in use
    }
    for (const auto& [key, time] : times.items()) {
      if (times.is_object() && time.is_number_unsigned() && time.get<std::uint64_t>() <= longest_time) {
        tables[name][key] = Nanoseconds(time.get<std::int64_t>());
      }
    }
  }
  created = kept.contains("created") && kept["created"].is_string() ? kept["created"].get<std::string>() : "";
  return tables;
}

const cost::Times& Calibration::times(std::size_t at_work) { return tables_[table_name(at_work)]; }

std::string Calibration::where() const { return fmt::format("this machine ({}), {}", machine_, created_); }

namespace {

/// Times that this process took or checked, by file, table and key.
class CheckedTimes {
 public:
  bool has(const std::string& name, Nanoseconds time) const {
    const std::lock_guard lock(mutex_);
    const auto found = times_.find(name);
    return found != times_.end() && found->second == time;
  }
  void add(const std::string& name, Nanoseconds time) {
    const std::lock_guard lock(mutex_);
    times_[name] = time;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Nanoseconds> times_;
};

CheckedTimes& checked_times() {
  static CheckedTimes all;
  return all;
}

constexpr std::size_t most_checked = 3;

}  // namespace

/// The distinct tasks of a plan, and how often it has each.
struct Calibration::Pass {
  struct Key {
    TaskId task;
    std::int64_t count = 0;
  };
  Pass(Calibration& own, const plan::Plan& whole, const cost::TaskKeys& names_of_tasks, const cluster::Cluster& whole_cluster,
       const exec::Backend& by)
      : calibration(own),
        plan(whole),
        backend(by),
        bare(whole_cluster.devices()),
        names(names_of_tasks),
        alone_name(table_name(1)),
        beside_name(table_name(whole_cluster.size())),
        alone(own.tables_[alone_name]),
        beside(own.tables_[beside_name]) {
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      if (!std::holds_alternative<plan::Delay>(plan.tasks()[t].action)) {
        Key& key = keys.try_emplace(names[TaskId(t)], Key{TaskId(t)}).first->second;
        ++key.count;
      }
    }
    for (std::size_t d = 0; d < whole_cluster.size(); ++d) {
      everybody.push_back(DeviceId(d));
    }
  }

  bool timed(const std::string& key) const { return alone.contains(key) && beside.contains(key); }

  /// While other devices rest, and while all do the same.
  std::pair<Timing, Timing> time(const Key& key) const {
    const MeetingId meeting = plan::meeting_of(plan[key.task]);
    const TaskId first = meeting.valid() ? plan.members(meeting)[0] : key.task;  // whose distances the key has
    const std::int64_t copies = copies_for(footprint(plan, first), names.distances(first));
    const Turns turns = [&](TaskId task) {
      const Bytes one = footprint(plan, task);
      std::vector<std::int64_t> counts;
      for (const Bytes distance : names.distances(task)) {
        counts.push_back(std::clamp<std::int64_t>(distance.count / std::max<std::int64_t>(1, one.count), 1, copies));
      }
      return counts;
    };
    if (meeting.valid()) {
      const Timing timing = time_meeting(plan, meeting, copies, turns, bare, backend);
      return {timing, timing};
    }
    const Timing single = time_task(plan, key.task, {plan[key.task].device}, copies, turns, bare, backend);
    return {single, everybody.size() > 1 ? time_task(plan, key.task, everybody, copies, turns, bare, backend) : single};
  }

  void note_as_checked(const std::string& key) const {
    checked_times().add(checked_name(alone_name, key), alone.at(key));
    checked_times().add(checked_name(beside_name, key), beside.at(key));
  }
  bool is_checked(const std::string& key) const {
    return checked_times().has(checked_name(alone_name, key), alone.at(key)) &&
           checked_times().has(checked_name(beside_name, key), beside.at(key));
  }
  std::string checked_name(const std::string& table, const std::string& key) const {
    return fmt::format("{}|{}|{}", calibration.file_.string(), table, key);
  }

  /// The timed keys of which `which` is true and in which the plan spends most time, all tasks of a key together.
  std::vector<std::string> largest(const std::function<bool(const std::string&)>& which) const {
    std::vector<std::string> list;
    for (const auto& [key, one] : keys) {
      if (timed(key) && which(key)) {
        list.push_back(key);
      }
    }
    const auto part = [&](const std::string& key) { return beside.at(key).count * keys.at(key).count; };
    std::stable_sort(list.begin(), list.end(), [&](const std::string& a, const std::string& b) { return part(a) > part(b); });
    list.resize(std::min(list.size(), most_checked));
    return list;
  }

  /// True if the time of a key disagrees with the one taken now so much that it changes the sum of all tasks by a fifth.
  bool disagrees(const std::string& key, const std::pair<Timing, Timing>& now) const {
    const Key& one = keys.at(key);
    const auto far = [&](const cost::Times& times, Nanoseconds fresh) {
      double sum = 0;
      for (const auto& [other, count] : keys) {
        sum += timed(other) ? static_cast<double>(times.at(other).count * count.count) : 0;
      }
      const auto kept = static_cast<double>(times.at(key).count);
      const auto taken = static_cast<double>(std::max<std::int64_t>(1, fresh.count));
      return std::max(kept / taken, taken / std::max(1.0, kept)) > 1.5 &&
             std::abs(kept - taken) * static_cast<double>(one.count) > 0.2 * sum;
    };
    return far(alone, now.first.one) || far(beside, now.second.one);
  }

  /// True if some of the keys that matter most, of which `which` is true, disagree with times taken now.
  bool any_disagrees(const std::function<bool(const std::string&)>& which) const {
    for (const std::string& key : largest(which)) {
      if (disagrees(key, time(keys.at(key)))) {
        return true;
      }
      note_as_checked(key);
    }
    return false;
  }

  Calibration& calibration;
  const plan::Plan& plan;
  const exec::Backend& backend;
  cluster::Cluster bare;  // without the emulated link, which the simulator adds
  const cost::TaskKeys& names;
  std::string alone_name;
  std::string beside_name;
  cost::Times& alone;
  cost::Times& beside;  // the same where there is one device
  std::map<std::string, Key> keys;
  std::vector<DeviceId> everybody;
};

std::size_t Calibration::measure(const plan::Plan& plan, const cost::TaskKeys& keys, const cluster::Cluster& cluster,
                                 const exec::Backend& backend, bool again, const Progress& progress) {
  Pass pass(*this, plan, keys, cluster, backend);
  std::set<std::string> taken;
  bool disturbed = false;
  try {
    again = again || pass.any_disagrees([&](const std::string& key) { return !pass.is_checked(key); });
    std::vector<std::string> wanted;
    for (const auto& [key, one] : pass.keys) {
      if (again || !pass.timed(key)) {
        wanted.push_back(key);
      }
    }
    if (wanted.empty()) {
      return 0;
    }
    for (int round = 0; round < 2; ++round) {
      TimeTableWriter fill_alone(pass.alone, again);
      TimeTableWriter fill_beside(pass.beside, again);
      bool stopped = false;
      for (const std::string& key : wanted) {
        if (progress && !progress(taken.size(), wanted.size(), key)) {
          stopped = true;
          break;
        }
        auto [single, all] = pass.time(pass.keys.at(key));
        if (round > 0) {  // a disturbance makes it longer
          single.one = std::min(single.one, pass.alone.at(key));
          all.one = std::min(all.one, pass.beside.at(key));
        }
        fill_alone.take(key, single);
        fill_beside.take(key, all);
        taken.insert(key);
        pass.note_as_checked(key);
      }
      fill_alone.finish();
      fill_beside.finish();
      if (stopped) {
        break;  // the findings of the round before remain
      }
      disturbed = !on_gpus(cluster) && pass.any_disagrees([&](const std::string& key) { return taken.contains(key); });
      if (!disturbed) {
        break;
      }
    }
  } catch (const Stopped&) {
    // Earlier times are kept, unless they were disturbed.
  }
  if (taken.empty()) {
    return 0;
  }
  if (!asked_to_stop() && !on_gpus(cluster) && (again || !pass.alone.contains(wake_up_key))) {
    pass.alone[std::string(wake_up_key)] = time_wake_up(plan, pass.bare, backend);
  }
  created_ = time_text();
  if (disturbed) {
    unkept_ = "other work disturbed them: a task took 1.5 times as long as a moment later";
  } else {
    keep();
  }
  return taken.size();
}

void Calibration::keep() {
  if (file_.empty()) {
    unkept_ = "the environment names no folder for it";
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  job::Json times = job::Json::object();
  for (const auto& [name, table] : tables_) {
    job::Json& one = times[name] = job::Json::object();
    for (const auto& [key, time] : table) {
      one[key] = time.count;
    }
  }
  try {
    unkept_.clear();
    write_whole(file_, job::Json{{"machine", machine_}, {"created", created_}, {"times", times}}.dump(1) + "\n");
  } catch (const Error& why) {
    unkept_ = why.what();  // then they are of this process alone
  }
}

}  // namespace baton::measure
