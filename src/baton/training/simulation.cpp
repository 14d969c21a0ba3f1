#include "baton/training/simulation.h"

#include <string_view>
#include <utility>

#include "baton/base/stop.h"
#include "baton/cost/roofline.h"
#include "baton/cost/scaled.h"
#include "baton/job/setup.h"
#include "baton/measure/wake_up.h"
#include "baton/sim/memory_contention.h"

namespace baton::training {

void require_rates(const Job& job) {
  if (job.imagined() && !job.overrides().duration) {
    job::require_rates(job.spec(), job.request(), job.software());
  }
}

Simulation::Simulation(Job job, plan::Plan plan, sim::StandsFor stands_for, const measure::Calibration::Progress& progress)
    : job_(std::move(job)), plan_(std::move(plan)), stands_for_(std::move(stands_for)), what_if_(job_.what_if()) {
  if (job_.imagined()) {
    require_rates(job_);
  } else {
    timed_ = timed(progress);
  }
}

Simulation::Timed Simulation::timed(const measure::Calibration::Progress& progress) const {
  measure::Calibration calibration(job_.machine(), job_.cluster(), job_.backend());
  const cost::TaskKeys keys = calibration.keys(plan_, job_.cluster());
  calibration.measure(plan_, keys, job_.cluster(), job_.backend(), false, progress);
  throw_if_stop_requested();
  const cost::Times& alone = calibration.times(1);
  const cost::Times& beside = calibration.times(job_.cluster().size());
  const auto time_of = [](const cost::Times& times, std::string_view key) {
    const auto found = times.find(key);
    return found == times.end() ? Nanoseconds(0) : found->second;
  };
  return {.alone = std::make_shared<cost::Measured>(alone, keys, calibration.where()),
          .beside = std::make_shared<cost::Measured>(beside, keys, calibration.where()),
          .waking_up = time_of(alone, measure::wake_up_key),
          .rest_of_step = time_of(beside, measure::Calibration::step_key),
          .where = calibration.where()};
}

trace::StepTrace Simulation::step(const WhatIf& what_if) const {
  if (!timed_) {
    return job::imagined_step(plan_, job_.cluster(), stands_for_, what_if, job_.software(), job_.overrides().duration, kept_);
  }
  trace::StepTrace step = sim::simulate(
      plan_, changed(job_.cluster(), what_if), cost::Scaled(timed_->alone, what_if.compute, what_if.link),
      cost::Scaled(timed_->beside, what_if.compute, what_if.link), {.rest = measure::long_idle, .costs = timed_->waking_up});
  step.duration += timed_->rest_of_step;
  return step;
}

std::string Simulation::cost_origin() const {
  if (job_.overrides().duration) {
    return job::changed_origin(job_.overrides().duration_origin, job_.spec());
  }
  return timed_ ? job::changed_origin(cost::Measured::origin_on(timed_->where), job_.spec())
                : job::imagined_origin(job_.cluster(), job_.spec(), job_.software());
}

std::vector<Sensitivity> sensitivities(const Simulation& simulation, Nanoseconds step) {
  return job::sensitivities([&](const WhatIf& what_if) { return simulation.step(what_if).duration; }, simulation.what_if(), step);
}

}  // namespace baton::training
