#include "baton/lab/calibration.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>

#include "baton/base/error.h"
#include "baton/exec/executor.h"
#include "baton/lab/isolate.h"
#include "baton/lab/json.h"
#include "baton/lab/store.h"
#include "baton/trace/analysis.h"

namespace baton::lab {
namespace {

constexpr Nanoseconds time_for_one(60'000'000);
constexpr std::int64_t most_copies = 64;
constexpr std::int64_t least_steps = 5;

/// FNV-1a, for the name of a file.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 14695981039346656037ULL;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return value;
}

std::filesystem::path cache_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) {
    return std::filesystem::path(cache) / "baton";
  }
  if (const std::string home = set("HOME"); !home.empty()) {
    return std::filesystem::path(home) / ".cache" / "baton";
  }
  return std::filesystem::temp_directory_path() / "baton";
}

Bytes footprint(const plan::Plan& plan, TaskId id) {
  std::set<BufferId> touched(plan[id].reads.begin(), plan[id].reads.end());
  touched.insert(plan[id].writes.begin(), plan[id].writes.end());
  Bytes sum;
  for (const BufferId buffer : touched) {
    sum += plan[buffer].size();
  }
  return sum;
}

/// A device's memory in use, as a power of two; from twice the caches on, more makes no difference.
Bytes memory_in_use(const plan::Plan& plan, Bytes cache) {
  std::vector<std::int64_t> sums(plan.devices().size(), 0);
  for (const plan::Buffer& buffer : plan.buffers()) {
    sums[buffer.device.index()] += buffer.size().count;
  }
  const std::int64_t largest = std::min(*std::max_element(sums.begin(), sums.end()), 2 * cache.count);
  return Bytes(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(largest, 1)))));
}

/// So many copies that together they use as much memory as the plan does: the times are then those of buffers that others
/// have displaced from the caches, as in the plan.
std::int64_t copies_for(Bytes one, Bytes in_use) {
  return std::clamp<std::int64_t>(in_use.count / std::max<std::int64_t>(1, one.count) + 1, 2, most_copies);
}

/// The median time from one copy to the next, in a plan that holds nothing but copies. `place` gives the moment that
/// counts of a copy.
template <typename Place>
Nanoseconds time_between(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend,
                         std::size_t rows, std::size_t columns, Place place) {
  exec::Executor executor(plan, cluster, backend);
  const exec::RunResult first = executor.run({.steps = 3, .warmup = 2});
  const std::int64_t fit = time_for_one.count / std::max<std::int64_t>(1, first.step_times.back().count);
  const exec::RunResult result = executor.run({.steps = std::clamp<std::int64_t>(fit, least_steps, 2000) + 1, .warmup = 1});
  std::vector<Nanoseconds> times;
  for (const trace::StepTrace& step : result.trace.steps) {
    for (std::size_t column = 0; column < columns; ++column) {
      for (std::size_t row = 1; row < rows; ++row) {
        times.push_back(place(step, row, column) - place(step, row - 1, column));
      }
    }
  }
  return trace::spread(times).median;
}

Nanoseconds time_task(const plan::Plan& plan, TaskId task, const std::vector<DeviceId>& devices, std::int64_t copies,
                      const cluster::Cluster& cluster, const exec::Backend& backend) {
  const plan::Plan isolated = isolate_task(plan, task, devices, copies);
  return time_between(isolated, cluster, backend, static_cast<std::size_t>(copies), devices.size(),
                      [&](const trace::StepTrace& step, std::size_t row, std::size_t column) {
                        return step.events[row * devices.size() + column].start;
                      });
}

Nanoseconds time_meeting(const plan::Plan& plan, MeetingId meeting, std::int64_t copies, const cluster::Cluster& cluster,
                         const exec::Backend& backend) {
  const std::size_t members = plan.members(meeting).size();
  const plan::Plan isolated = isolate_meeting(plan, meeting, copies);
  return time_between(isolated, cluster, backend, static_cast<std::size_t>(copies), 1,
                      [&](const trace::StepTrace& step, std::size_t row, std::size_t) {
                        Nanoseconds end;
                        for (std::size_t m = 0; m < members; ++m) {
                          end = std::max(end, step.events[row * members + m].end);
                        }
                        return end;
                      });
}

std::string table_name(std::size_t at_work, Bytes in_use) {
  return fmt::format("{} at work, {} in use", at_work, to_text(in_use));
}

}  // namespace

Calibration::Calibration(const cluster::Machine& machine, const exec::Backend& backend)
    : machine_(fmt::format("{}, {} core{}, {} backend, baton {} by {}", machine.cpu, machine.cores.size(),
                           machine.cores.size() == 1 ? "" : "s", backend.name(), BATON_VERSION, BATON_COMPILER)) {
  cache_ = machine.cache;
  file_ = cache_folder() / fmt::format("calibration-{:016x}.json", hash(machine_));
  std::ifstream stream(file_);
  const Json kept = Json::parse(stream, nullptr, false);
  if (!kept.is_object() || kept.value("machine", "") != machine_) {
    return;  // none, or cut off: it is measured again
  }
  created_ = kept.value("created", "");
  for (const auto& [name, times] : kept["times"].items()) {
    for (const auto& [key, time] : times.items()) {
      tables_[name][key] = Nanoseconds(time.get<std::int64_t>());
    }
  }
}

const cost::Times& Calibration::times(const plan::Plan& plan, std::size_t at_work) {
  return tables_[table_name(at_work, memory_in_use(plan, cache_))];
}

std::string Calibration::where() const { return fmt::format("this machine ({}), {}", machine_, created_); }

std::size_t Calibration::measure(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend,
                                 bool again, const Progress& progress) {
  const cluster::Cluster bare(cluster.devices());  // without the emulated link, which the simulator adds
  const Bytes in_use = memory_in_use(plan, cache_);
  cost::Times& alone = tables_[table_name(1, in_use)];
  cost::Times& beside = tables_[table_name(cluster.size(), in_use)];  // the same where there is one device
  std::map<std::string, TaskId> wanted;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (!std::holds_alternative<plan::Delay>(plan.tasks()[t].action)) {
      const std::string key = cost::key_of(plan, TaskId(t), cluster);
      if (again || !alone.contains(key) || !beside.contains(key)) {
        wanted.emplace(key, TaskId(t));
      }
    }
  }
  if (wanted.empty()) {
    return 0;
  }
  std::vector<DeviceId> everybody;
  for (std::size_t d = 0; d < cluster.size(); ++d) {
    everybody.push_back(DeviceId(d));
  }
  std::size_t done = 0;
  for (const auto& [key, task] : wanted) {
    if (progress && !progress(done, wanted.size(), key)) {
      break;
    }
    const std::int64_t copies = copies_for(footprint(plan, task), in_use);
    if (const MeetingId meeting = plan::meeting_of(plan[task]); meeting.valid()) {
      beside[key] = alone[key] = time_meeting(plan, meeting, copies, bare, backend);
    } else {
      alone[key] = time_task(plan, task, {plan[task].device}, copies, bare, backend);
      beside[key] = cluster.size() > 1 ? time_task(plan, task, everybody, copies, bare, backend) : alone[key];
    }
    ++done;
  }
  created_ = fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(std::time(nullptr)));
  keep();
  return done;
}

void Calibration::keep() const {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  Json times = Json::object();
  for (const auto& [name, table] : tables_) {
    Json& one = times[name] = Json::object();
    for (const auto& [key, time] : table) {
      one[key] = time.count;
    }
  }
  write_whole(file_, Json{{"machine", machine_}, {"created", created_}, {"times", times}}.dump(1) + "\n");
}

}  // namespace baton::lab
