#include "baton/training/simulation.h"

#include <algorithm>

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

Simulation::Simulation(const Job& job, const plan::Plan& plan, sim::StandsFor stands_for,
                       const measure::Calibration::Progress& progress)
    : job_(job), plan_(plan), stands_for_(std::move(stands_for)), what_if_(job.what_if()) {
  if (!job.imagined()) {
    calibration_ = std::make_unique<measure::Calibration>(job.machine(), job.cluster(), job.backend());
    keys_.emplace(calibration_->keys(plan, job.cluster()));
    calibration_->measure(plan, *keys_, job.cluster(), job.backend(), false, progress);
    throw_if_stop_requested();
  } else {
    require_rates(job);
  }
}

trace::StepTrace Simulation::step(const WhatIf& what_if) const {
  if (!calibration_) {
    return job::imagined_step(plan_, job_.cluster(), stands_for_, what_if, job_.software(), job_.overrides().duration, &kept_);
  }
  const cluster::Cluster cluster = changed(job_.cluster(), what_if);
  const std::string where = calibration_->where();
  const cost::Times& times = calibration_->times(cluster.size());
  const cost::Times& times_alone = calibration_->times(1);
  const cost::Measured alone(times_alone, *keys_, where);
  const cost::Measured beside(times, *keys_, where);
  const auto waking = times_alone.find(measure::wake_up_key);
  trace::StepTrace step = sim::simulate(
      plan_, cluster, cost::Scaled(alone, what_if.compute, what_if.link), cost::Scaled(beside, what_if.compute, what_if.link),
      {.rest = measure::long_idle, .costs = waking == times_alone.end() ? Nanoseconds(0) : waking->second});
  if (const auto rest = times.find(measure::Calibration::step_key); rest != times.end()) {
    step.duration += rest->second;
  }
  return step;
}

std::string Simulation::cost_origin() const {
  if (job_.overrides().duration) {
    return job::changed_origin(job_.overrides().duration_origin, job_.spec());
  }
  return calibration_ ? job::changed_origin(cost::Measured::origin_on(calibration_->where()), job_.spec())
                      : job::imagined_origin(job_.cluster(), job_.spec(), job_.software());
}

std::vector<Sensitivity> sensitivities(const Simulation& simulation, Nanoseconds step) {
  return job::sensitivities([&](const WhatIf& what_if) { return simulation.step(what_if).duration; }, simulation.what_if(), step);
}

}  // namespace baton::training
