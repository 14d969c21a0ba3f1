#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "baton/base/units.h"
#include "baton/plan/task.h"

namespace baton::ranks {

/// The progress of one device. Its thread updates it with one relaxed store per start and end of a task; other
/// threads may read it at any time.
class alignas(64) DeviceProgress {
 public:
  void start(std::size_t lane) { advance(lanes_[lane]); }
  void finish(std::size_t lane) { advance(lanes_[lane]); }
  /// The thread is idle and polls for work: at least a few times per second.
  void look() { advance(looks_); }

  struct Counts {
    /// Starts and ends since the first step: 2n of them are a step of n tasks, and an odd count is a task
    /// under way.
    std::array<std::uint64_t, plan::lane_count> lanes{};
    std::uint64_t looks = 0;
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const {
    Counts copy;
    for (std::size_t lane = 0; lane < copy.lanes.size(); ++lane) {
      copy.lanes[lane] = lanes_[lane].load(std::memory_order_relaxed);
    }
    copy.looks = looks_.load(std::memory_order_relaxed);
    return copy;
  }

 private:
  static void advance(std::atomic<std::uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::array<std::atomic<std::uint64_t>, plan::lane_count> lanes_{};
  std::atomic<std::uint64_t> looks_{0};
};

/// The present activity of a rank. Only `training` has tasks; the others may take long: starting, reading and saving state
/// and gathering results between runs, and ending, after all ranks have done their work.
enum class Activity : std::uint8_t { starting, training, between, ending };

/// Snapshot of a rank's progress.
struct ProgressSnapshot {
  Activity activity = Activity::starting;
  std::uint64_t gatherings = 0;  // arrivals at and departures from the gathering between steps; odd while it is there
  std::uint64_t looks = 0;       // how often it has polled while it waits there
  std::vector<DeviceProgress::Counts> devices;  // the counts of its own devices, in their order; empty before there is a plan
  Nanoseconds worked{};  // processor time of its threads; filled in by the watch, 0 from `RankProgress::snapshot`

  /// True if there is progress since the other snapshot.
  bool moved_since(const ProgressSnapshot& before) const;
};

/// The progress that a rank publishes: per device by its engine, as a whole by the application.
class RankProgress {
 public:
  /// Opens one entry per device of this rank, for an engine that is made now; snapshots show these entries from now on. Returns the
  /// number by which `show` takes them. Entries of other engines stay valid.
  std::size_t open(std::size_t devices);
  DeviceProgress& device(std::size_t own) { return entries_.back().devices[own]; }
  /// Shows the entries that `open` numbered: those of the engine that runs.
  void show(std::size_t number);

  void set(Activity activity) { activity_.store(activity, std::memory_order_relaxed); }
  /// The rank arrives at the gathering between steps; it leaves it.
  void arrive() { gatherings_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { gatherings_.fetch_add(1, std::memory_order_relaxed); }

  /// The rank waits for others as a whole, and polls.
  void look() { looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  ProgressSnapshot snapshot() const;

 private:
  std::atomic<Activity> activity_{Activity::starting};
  std::atomic<std::uint64_t> gatherings_{0};
  std::atomic<std::uint64_t> looks_{0};
  mutable std::mutex mutex_;
  struct Entries {
    std::unique_ptr<DeviceProgress[]> devices;  // NOLINT: an array of atomics
    std::size_t count;
  };
  std::vector<Entries> entries_;
  std::size_t shown_ = 0;
};

}  // namespace baton::ranks
