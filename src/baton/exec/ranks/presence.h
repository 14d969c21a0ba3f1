#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "baton/base/units.h"
#include "baton/plan/task.h"

namespace baton::exec {

/// What one device is at. Its thread says so in passing, with a relaxed store a task's start and end; others
/// may read it at any time.
class alignas(64) Presence {
 public:
  void start(std::size_t lane) { advance(lanes_[lane]); }
  void finish(std::size_t lane) { advance(lanes_[lane]); }
  /// The thread has nothing to do and looks whether that is still so: a few times a second at least.
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

/// What a rank does as a whole. Only `training` has tasks; the rest takes its time: starting, reading and saving state and
/// gathering results between runs, ending, when all are known to have done what they had to.
enum class Activity : std::uint8_t { starting, training, between, ending };

/// What a rank is at, at one moment.
struct Standing {
  Activity activity = Activity::starting;
  std::uint64_t gatherings = 0;           // between steps all ranks gather: comings and goings, odd while it is there
  std::uint64_t looks = 0;                // while it waits there: how often it has looked
  std::vector<Presence::Counts> devices;  // of its own devices, in their order; none before there is a plan
  Nanoseconds worked{};                   // processor time of its threads; filled in by the watch, 0 from `Board::standing`

  /// Whether something was started, ended or gone on with since.
  bool moved_since(const Standing& before) const;
};

/// Where a rank says what it is at: its engine by device, its application as a whole.
class Board {
 public:
  /// From now on there are so many devices of its own; those of before stay where they are, but nobody looks
  /// at them.
  void open(std::size_t devices);
  Presence& device(std::size_t own) { return boards_.back()[own]; }

  void set(Activity activity) { activity_.store(activity, std::memory_order_relaxed); }
  /// The rank has come to where all gather between steps; it has gone on.
  void come() { gatherings_.fetch_add(1, std::memory_order_relaxed); }
  void go_on() { gatherings_.fetch_add(1, std::memory_order_relaxed); }

  /// The rank waits for others as a whole, and looks whether that is still so.
  void look() { looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  Standing standing() const;

 private:
  std::atomic<Activity> activity_{Activity::starting};
  std::atomic<std::uint64_t> gatherings_{0};
  std::atomic<std::uint64_t> looks_{0};
  mutable std::mutex opening_;
  std::vector<std::unique_ptr<Presence[]>> boards_;  // NOLINT: arrays of atomics
  std::size_t count_ = 0;
};

}  // namespace baton::exec
