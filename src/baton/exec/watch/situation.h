#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/exec/ranks/presence.h"
#include "baton/plan/plan.h"

namespace baton::exec {

/// How long a rank that starts, saves or ends may wait for something else than the others before it is taken for hung.
inline constexpr Nanoseconds longest_absence(60'000'000'000);

/// Tells from where ranks stand in a plan who waits for whom. Pure: the same standings give the same words.
class Situation {
 public:
  /// `rank_of`: by device of the plan. Steps are numbered from `steps_before` on. `link`: what meetings are slowed to, where they
  /// are. `slow_disk`: how long who starts, saves or ends may wait for something else than the others.
  Situation(plan::Plan plan, std::vector<int> rank_of, std::int64_t steps_before, std::optional<cluster::Link> link = std::nullopt,
            Nanoseconds slow_disk = longest_absence);

  /// What a rank does, in a few words: "was in t17 (linear in the backward of block 3, on cpu:1) of step 12",
  /// "waited in t20 (all_reduce …) of step 12 for rank 2".
  std::string describe(std::span<const Standing> standings, int rank) const;

  /// Where no rank has moved for a while, who is to blame for it.
  struct Stall {
    std::vector<int> ranks;  // those with a device that does not even look; empty where that is all, or none
    Nanoseconds allowed;     // how long what they do may take before it is called hung
  };
  /// `still`: by rank, which of its devices have not even looked; all, where the rank waits, starts, saves or ends as a
  /// whole and has not. One that starts, saves or ends may take a minute and more. Nothing where not all have devices yet.
  std::optional<Stall> stall(std::span<const Standing> standings, std::span<const std::vector<bool>> still,
                             Nanoseconds patience) const;

 private:
  struct Place {
    std::int64_t step;
    TaskId task;  // under way, or next; not valid where the lane has none
    bool started;
  };
  Place place(std::span<const Standing> standings, DeviceId device, plan::Lane lane) const;
  bool known(std::span<const Standing> standings) const;
  bool has_come(std::span<const Standing> standings, TaskId member, std::int64_t step) const;
  std::vector<int> missing(std::span<const Standing> standings, TaskId task, std::int64_t step) const;
  std::int64_t step_of(std::span<const Standing> standings, int rank) const;
  std::vector<int> not_gathered(std::span<const Standing> standings, int rank) const;

  /// What holds a rank: tasks under way that wait for nobody, and those that wait.
  struct Held {
    std::vector<TaskId> working;
    std::vector<TaskId> waiting;
    bool gathering = false;
  };
  Held held(std::span<const Standing> standings, int rank) const;
  Nanoseconds work_allowance(std::span<const Standing> standings, DeviceId device, Nanoseconds patience) const;
  Nanoseconds crossing_allowance(std::span<const Standing> standings) const;
  Nanoseconds longest_pause(std::span<const Standing> standings) const;
  Nanoseconds saving_allowance() const;

  plan::Plan plan_;
  std::vector<int> rank_of_;
  std::vector<std::size_t> own_;  // by device: which of its rank's devices it is
  std::int64_t steps_before_;
  std::optional<cluster::Link> link_;
  Nanoseconds slow_disk_;
};

/// What a rank does as a whole, where no more is known: "was starting".
std::string describe(Activity activity);

/// "rank 2", "ranks 0, 1 and 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace baton::exec
