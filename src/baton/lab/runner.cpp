#include "baton/lab/runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/base/stop.h"
#include "baton/lab/instances.h"
#include "baton/lab/rows.h"
#include "baton/measure/core_peak.h"
#include "baton/measure/other_processes.h"

namespace baton::lab {
namespace {

/// At most this many points take turns; a run that is killed loses their records.
constexpr std::size_t interleaved = 32;
/// The share of a point's time limit that its instances measure; the rest is for setting them up.
constexpr double measured_share = 0.7;
/// A precise run gives a point that scatters this many times its limit at most.
constexpr std::int64_t precise_patience = 120;

constexpr const char* refused_point = "refused";

/// A point of a batch, and the records of its instances so far.
struct Entry {
  std::size_t index;  // the index of the point
  std::vector<Record> records;
  std::vector<double> times;
  Nanoseconds spent;
  measure::CoreTime core_time;
  Record merged;
  bool once = false;    // one instance must do
  std::string stopped;  // empty: it goes on
};

/// Opens a new instance of the point, measures it and closes it.
void measure_instance(const Experiment& experiment, const Point& point, Settings settings, Nanoseconds instance_time,
                      Entry& entry) {
  const Nanoseconds start = now();
  settings.instance = static_cast<int>(entry.records.size());
  const std::unique_ptr<Measurement> instance = experiment.open(point, settings);
  const measure::OtherProcesses others;
  instance->round(instance_time);
  if (const std::optional<measure::CoreTime> used = others.used()) {
    entry.core_time += *used;
  }
  entry.records.push_back(instance->record());
  entry.once = instance->once();
  entry.spent += now() - start;
  const Record& record = entry.records.back();
  if (const double time = number(record, key::time_per_step_ns, 0.0); time > 0) {
    entry.times.push_back(time);
  }
  entry.merged = merge_instances(entry.records);
  if (settings.cluster.empty()) {  // a simulation does not depend on this machine's speed
    entry.merged.set(key::core_peak_gflops, measure::core_peak_gflops());
    if (const std::optional<double> share = entry.core_time.share()) {
      entry.merged.set(key::others_share, *share);
    }
  }
}

/// The reason for which a point needs no further instance; empty if it needs one.
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

/// The order in which the points of a batch have their turn: another one in each round, and every second round the reverse of the
/// one before it, so that neither drift nor the caches' contents after the point before favour any.
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

/// Measures the points of an experiment, batch after batch, and keeps their records.
class Batches {
 public:
  Batches(const Experiment& experiment, const std::vector<Point>& points, const Settings& settings, const Keep& keep,
          const Progress& progress)
      : experiment_(experiment), points_(points), settings_(settings), keep_(keep), progress_(progress), records_(points.size()) {
    for (const Point& point : points) {
      const job::FieldValue* devices = point.find(key::devices.name);
      if (devices != nullptr && std::holds_alternative<std::int64_t>(*devices)) {
        settings_.most_devices = std::max(settings_.most_devices, std::get<std::int64_t>(*devices));
      }
    }
  }

  /// The record of a point that was measured before.
  void take_known(std::size_t point, const Record& record) {
    records_[point] = record;
    ++finished_;
  }
  /// Measures these points, which take turns; returns false if a signal asked to stop; kept records stay.
  bool measure(std::span<const std::size_t> points) {
    batch_.clear();
    for (const std::size_t index : points) {
      batch_.push_back(
          {.index = index, .records = {}, .times = {}, .spent = {}, .core_time = {}, .merged = {}, .once = false, .stopped = {}});
    }
    if (!take_turns()) {
      return false;
    }
    keep_final_records();
    finished_ += static_cast<double>(batch_.size());
    return true;
  }
  std::vector<Record> records() && { return std::move(records_); }

 private:
  bool take_turns() {
    Turns turns(batch_.size());
    const auto goes_on = [](const Entry& entry) { return entry.stopped.empty(); };
    for (std::size_t round = 0; std::any_of(batch_.begin(), batch_.end(), goes_on); ++round) {
      for (const std::size_t turn : turns.of_round(round)) {
        if (goes_on(batch_[turn]) && !measure_once(batch_[turn])) {
          return false;
        }
      }
      if (settings_.precise && precise_enough(times_of(batch_))) {
        for (Entry& entry : batch_) {
          entry.stopped = goes_on(entry) ? "precise" : entry.stopped;
        }
      }
    }
    return true;
  }

  /// One instance of a point; returns false if a signal asked to stop.
  bool measure_once(Entry& entry) {
    const Point& point = points_[entry.index];
    // Only a measurement that is not repeated takes so long that it reports its own progress: its point is then done.
    settings_.within = [this, &point, before = reached()](double share) { show(point, before + share); };
    try {
      measure_instance(experiment_, point, settings_, instance_time(), entry);
      entry.stopped = done_because(entry, settings_);
      entry.merged.set(key::stopped, "not finished");
    } catch (const Stopped&) {
      return false;  // the records of earlier instances stay
    } catch (const Error& error) {
      entry.merged = {key::reason(error.what())};
      entry.stopped = refused_point;
    }
    records_[entry.index] = entry.merged;
    if (entry.stopped.empty() || entry.stopped == refused_point) {
      Record kept = entry.merged;
      kept.erase(key::timeline);  // until it is the final one
      keep_(point, kept, entry.stopped == refused_point);
    }
    return show(point, reached());
  }

  void keep_final_records() {
    const double drift = drift_of(times_of(batch_));
    const std::string name = batch_name(batch_.front().index);
    for (Entry& entry : batch_) {
      if (entry.stopped == refused_point) {
        continue;
      }
      entry.merged.set(key::stopped, entry.stopped);
      if (settings_.cluster.empty()) {
        entry.merged.set(key::batch_name, name);
        entry.merged.set(key::drift, drift);
      }
      records_[entry.index] = entry.merged;
      keep_(points_[entry.index], entry.merged, true);
    }
  }

  /// The most time of one instance.
  Nanoseconds instance_time() const {
    return Nanoseconds(static_cast<std::int64_t>(measured_share * static_cast<double>(settings_.time_limit.count)) /
                       static_cast<std::int64_t>(usual_instances));
  }

  /// The number of points that are done, those of the batch in part.
  double reached() const {
    const std::size_t expected = !settings_.cluster.empty() ? 1 : settings_.precise ? least_precise_instances : usual_instances;
    double sum = finished_;
    for (const Entry& entry : batch_) {
      const double share = static_cast<double>(entry.records.size()) / static_cast<double>(expected);
      sum += !entry.stopped.empty() ? 1 : 0.99 * std::min(1.0, share);
    }
    return sum;
  }

  bool show(const Point& point, double done) {
    shown_ = std::max(shown_, std::min(1.0, done / static_cast<double>(points_.size())));
    return !progress_ || progress_(shown_, fmt::format("{} {}", experiment_.id, to_words(point)));
  }

  const Experiment& experiment_;
  const std::vector<Point>& points_;
  Settings settings_;
  const Keep& keep_;
  const Progress& progress_;
  std::vector<Record> records_;
  std::vector<Entry> batch_;
  double finished_ = 0;  // points
  double shown_ = 0;     // the share that was told last
};

}  // namespace

std::vector<Record> measure(const Experiment& experiment, const std::vector<Point>& points, const Settings& settings,
                            const std::map<Point, Record>& known, const Keep& keep, const Progress& progress) {
  Batches batches(experiment, points, settings, keep, progress);
  std::vector<std::size_t> todo;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (const auto found = known.find(points[i]); found != known.end()) {
      batches.take_known(i, found->second);
    } else {
      todo.push_back(i);
    }
  }
  for (std::span<const std::size_t> left = todo; !left.empty();) {
    const std::size_t count = std::min(left.size(), interleaved);
    if (!batches.measure(left.first(count))) {
      break;
    }
    left = left.subspan(count);
  }
  return std::move(batches).records();
}

}  // namespace baton::lab
