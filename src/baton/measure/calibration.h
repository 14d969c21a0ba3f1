#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "baton/cluster/machine.h"
#include "baton/cost/measured.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

namespace baton::measure {

/// The times that a file keeps for a machine, by table, and when they were taken. Empty if it is damaged or another machine's;
/// entries that are not times are skipped.
std::map<std::string, cost::Times> parse_calibration(std::string_view text, const std::string& machine, std::string& created);

/// Times of tasks measured one by one on this machine, kept between runs in the user's cache folder. Each is timed with its
/// operands where they are in the plan (cost::TaskKeys): in a cache if they were touched a moment ago, else in memory.
class Calibration {
 public:
  /// Reads what was kept for a machine, backend and program of this kind; empty if nothing was.
  Calibration(const cluster::Machine& machine, const cluster::Cluster& cluster, const exec::Backend& backend);

  /// Called before each measurement; false: stop, keeping what was measured.
  using Progress = std::function<bool(std::size_t done, std::size_t total, const std::string& key)>;
  /// Times each distinct task and meeting of the plan, by its key in `keys`, that has no time yet (with `again`, all of
  /// them) and keeps the times. Tasks are timed twice: while other devices rest, and while all devices do the same. Returns how
  /// many were timed.
  ///
  /// Times that another process stored are checked: some of the tasks in which the plan spends most time are timed now, and if one
  /// differs so much that it would change the step by a fifth, all are timed again. New times are checked in the same way, because
  /// something may have disturbed them: then the shorter of the two counts, and if they still differ they are not stored.
  std::size_t measure(const plan::Plan& plan, const cost::TaskKeys& keys, const cluster::Cluster& cluster,
                      const exec::Backend& backend, bool again = false, const Progress& progress = {});

  /// The key of the time that a step takes in addition to its tasks. The time is that of the plan that was timed first, until all
  /// are timed again.
  static constexpr std::string_view step_key = "step";
  /// The keys by which `measure` and `times` know the tasks of a plan.
  cost::TaskKeys keys(const plan::Plan& plan, const cluster::Cluster& cluster) const { return {plan, cluster, cache_}; }
  /// The times that `measure` has of tasks while this many devices work: one, or all.
  const cost::Times& times(std::size_t at_work);
  /// "this machine (CPU, 2 cores), 2026-11-15 10:00": for `CostModel::origin`.
  std::string where() const;
  const std::filesystem::path& file() const { return file_; }
  /// The reason for which the times of the last measurement could not be kept for the next call; empty if they could.
  const std::string& unkept() const { return unkept_; }

 private:
  struct Pass;  // one call of `measure`
  void keep();

  std::filesystem::path file_;
  std::string machine_;
  std::string created_;
  Bytes cache_;
  std::string unkept_;
  std::map<std::string, cost::Times> tables_;  // by devices at work
};

}  // namespace baton::measure
