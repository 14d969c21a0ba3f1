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
/// cluster with the figures of its file.
class Simulation {
 public:
  /// Times what has not been timed yet, where this machine is simulated. Costs of the job's own replace those of another
  /// cluster's file. Job and plan must outlive it. Where the plan is folded, `stands_for` says how.
  Simulation(const Job& job, const plan::Plan& plan, sim::StandsFor stands_for = {},
             const measure::Calibration::Progress& progress = {});
  Simulation(Job&&, const plan::Plan&, sim::StandsFor = {}, const measure::Calibration::Progress& = {}) = delete;
  Simulation(const Job&, plan::Plan&&, sim::StandsFor = {}, const measure::Calibration::Progress& = {}) = delete;

  trace::StepTrace step() const { return step(what_if_); }
  trace::StepTrace step(const WhatIf& what_if) const;
  /// The changes of the job's --what-if.
  const WhatIf& what_if() const { return what_if_; }
  /// The formula of the times and where they come from.
  std::string cost_origin() const;

 private:
  const Job& job_;
  const plan::Plan& plan_;
  sim::StandsFor stands_for_;
  WhatIf what_if_;
  std::unique_ptr<measure::Calibration> calibration_;  // of this machine
  std::optional<cost::TaskKeys> keys_;                 // for its times
  mutable cost::KeptTimes kept_;                       // of tasks on another cluster
};

using job::Sensitivity;
using job::stands_for;
using job::written_out;

/// Each knob made twice as good, one at a time; the one that gains most comes first.
std::vector<Sensitivity> sensitivities(const Simulation& simulation, Nanoseconds step);

}  // namespace baton::training
