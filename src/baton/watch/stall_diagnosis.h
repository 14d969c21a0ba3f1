#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"
#include "baton/ranks/progress.h"

namespace baton::watch {

/// The time that a rank which starts, saves or ends may wait for anything but other ranks before it counts as hung.
inline constexpr Nanoseconds longest_absence(60'000'000'000);

/// Decides from the progress of all ranks in a plan which rank waits for which. Pure: the same progress gives the same text.
class StallDiagnosis {
 public:
  /// `rank_of`: per device of the plan. Steps are numbered from `steps_before`. `link`: the emulated link, if there is one.
  /// `slow_disk`: how long a rank that starts, saves or ends may wait for anything but other ranks.
  StallDiagnosis(plan::Plan plan, std::vector<int> rank_of, std::int64_t steps_before,
                 std::optional<cluster::Link> link = std::nullopt, Nanoseconds slow_disk = longest_absence);

  /// The activity of a rank, in a few words: "was in t17 (linear in the backward of block 3, on cpu:1) of step 12", "waited
  /// in t20 (all_reduce …) of step 12 for rank 2".
  std::string describe(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const;

  /// If no rank has made progress for a while: the ranks that cause it.
  struct Stall {
    std::vector<int> ranks;  // ranks with an unresponsive device; empty if all or none
    Nanoseconds allowed;     // how long their task may take before it counts as hung
  };
  /// `still`: per rank, its devices that have not polled; all, if the rank waits, starts, saves or ends as a whole and has not
  /// polled. A rank that starts, saves or ends may take a minute or more. nullopt if some rank has no devices yet.
  std::optional<Stall> stall(std::span<const ranks::ProgressSnapshot> snapshots, std::span<const std::vector<bool>> still,
                             Nanoseconds patience) const;

 private:
  struct LanePosition {
    std::int64_t step;
    TaskId task;  // running, or next; not valid if the lane has none
    bool started;
  };
  LanePosition position_of(std::span<const ranks::ProgressSnapshot> snapshots, DeviceId device, plan::Lane lane) const;
  bool known(std::span<const ranks::ProgressSnapshot> snapshots) const;
  bool has_come(std::span<const ranks::ProgressSnapshot> snapshots, TaskId member, std::int64_t step) const;
  std::vector<int> missing(std::span<const ranks::ProgressSnapshot> snapshots, TaskId task, std::int64_t step) const;
  std::int64_t step_of(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const;
  std::vector<int> not_gathered(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const;

  /// The running tasks of a rank: those that wait for no other rank, and those that wait.
  struct RunningTasks {
    std::vector<TaskId> working;
    std::vector<TaskId> waiting;
    bool gathering = false;
  };
  RunningTasks held(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const;
  Nanoseconds work_allowance(std::span<const ranks::ProgressSnapshot> snapshots, DeviceId device, Nanoseconds patience) const;
  Nanoseconds crossing_allowance(std::span<const ranks::ProgressSnapshot> snapshots) const;
  Nanoseconds longest_pause(std::span<const ranks::ProgressSnapshot> snapshots) const;
  Nanoseconds saving_allowance() const;

  plan::Plan plan_;
  std::vector<int> rank_of_;
  std::vector<std::size_t> own_;  // by device: which of its rank's devices it is
  std::int64_t steps_before_;
  std::optional<cluster::Link> link_;
  Nanoseconds slow_disk_;
};

/// The activity of a rank, if no more is known: "was starting".
std::string describe(ranks::Activity activity);

}  // namespace baton::watch
