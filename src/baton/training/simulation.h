#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/cost/kept_times.h"
#include "baton/job/scenario.h"
#include "baton/measure/calibration.h"
#include "baton/sim/simulate.h"
#include "baton/trace/trace.h"
#include "baton/training/job.h"

namespace baton::training {

/// A usage error if the job is to be simulated on a cluster whose file lacks a rate that it needs (job/setup.h).
void require_rates(const Job& job);

/// A job's plan on a virtual clock: on this machine with the times of its tasks, each measured by itself, or on another
/// cluster with the figures of its file. Copies share the times of tasks that were asked for, so all of them belong to one thread.
class Simulation {
 public:
  /// Times what has not been timed yet, where this machine is simulated. Costs of the job's own replace those of another
  /// cluster's file. Where the plan is folded, `stands_for` says how.
  Simulation(Job job, plan::Plan plan, sim::StandsFor stands_for = {}, const measure::Calibration::Progress& progress = {});

  trace::StepTrace step() const { return step(what_if_); }
  trace::StepTrace step(const WhatIf& what_if) const;
  /// The changes of the job's --what-if.
  const WhatIf& what_if() const { return what_if_; }
  /// The formula of the times and where they come from.
  std::string cost_origin() const;

 private:
  /// The times of this machine.
  struct Timed {
    std::shared_ptr<const cost::CostModel> alone;   // while other devices rest
    std::shared_ptr<const cost::CostModel> beside;  // while all work
    Nanoseconds waking_up;                          // time that a device that has rested takes longer
    Nanoseconds rest_of_step;                       // the time of a step in addition to its tasks
    std::string where;
  };
  Timed timed(const measure::Calibration::Progress& progress) const;

  Job job_;
  plan::Plan plan_;
  sim::StandsFor stands_for_;
  WhatIf what_if_;
  std::optional<Timed> timed_;                                                   // if this machine is simulated
  std::shared_ptr<cost::KeptTimes> kept_ = std::make_shared<cost::KeptTimes>();  // times of tasks on another cluster
};

using job::Sensitivity;
using job::stands_for;
using job::written_out;

/// Each knob made twice as good, one at a time; the one that gains most comes first.
std::vector<Sensitivity> sensitivities(const Simulation& simulation, Nanoseconds step);

}  // namespace baton::training
