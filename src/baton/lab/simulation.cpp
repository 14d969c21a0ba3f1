#include "baton/lab/simulation.h"

#include <algorithm>

#include "baton/base/stop.h"
#include "baton/cost/roofline.h"
#include "baton/cost/scaled.h"
#include "baton/lab/rest.h"
#include "baton/sim/crowded.h"

namespace baton::lab {

sim::StandsFor stands_for(const strategy::Folded& folded) {
  sim::StandsFor stands_for{.devices = folded.stands_for, .parts = static_cast<std::size_t>(folded.parts), .reach = {}};
  for (const strategy::Spans spans : folded.spans) {
    stands_for.reach.push_back(spans == strategy::Spans::replicas ? sim::Reach::replicas
                               : spans == strategy::Spans::parts  ? sim::Reach::parts
                               : spans == strategy::Spans::both   ? sim::Reach::all
                                                                  : sim::Reach::members);
  }
  return stands_for;
}

cluster::Cluster written_out(const cluster::Cluster& cluster, const sim::StandsFor& stands_for) {
  if (stands_for.empty()) {
    return cluster;
  }
  std::vector<cluster::Device> devices;
  for (const std::vector<DeviceId>& list : stands_for.devices) {
    devices.push_back(cluster.device(list[0]));
  }
  return cluster::Cluster(std::move(devices), cluster.emulated_link(), cluster.wiring());
}

namespace {

/// Times of a program's own for what devices compute; what they carry is by the cluster's file.
class OwnCost final : public cost::CostModel {
 public:
  OwnCost(const Own& own, const cost::CostModel& base) : own_(own), base_(base) {}
  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override { return own_.duration(plan, task); }
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override { return base_.copying(plan, task); }
  std::string origin() const override { return own_.duration_origin; }

 private:
  const Own& own_;
  const cost::CostModel& base_;
};

}  // namespace

Simulation::Simulation(const Job& job, const plan::Plan& plan, sim::StandsFor stands_for, const Calibration::Progress& progress)
    : job_(job), plan_(plan), stands_for_(std::move(stands_for)), what_if_(job.what_if()) {
  if (!job.imagined()) {
    calibration_ = std::make_unique<Calibration>(job.machine(), job.cluster(), job.backend());
    calibration_->measure(plan, job.cluster(), job.backend(), false, progress);
    end_if_asked();
  }
}

trace::StepTrace Simulation::step(const WhatIf& what_if) const {
  const cluster::Cluster cluster = changed(job_.cluster(), what_if);
  if (!calibration_) {
    const cluster::Cluster written = written_out(cluster, stands_for_);
    const cost::Roofline roofline(written, job_.software());
    const OwnCost own(job_.own(), roofline);
    const cost::CostModel& costs = job_.own().duration ? static_cast<const cost::CostModel&>(own) : roofline;
    return sim::simulate(plan_, cluster, cost::Scaled(costs, what_if.compute, what_if.link), stands_for_);
  }
  const std::string where = calibration_->where();
  const cost::Times& times = calibration_->times(plan_, cluster.size());
  const cost::Times& times_alone = calibration_->times(plan_, 1);
  const cost::Measured alone(times_alone, cluster, where);
  const cost::Measured beside(times, cluster, where);
  const auto waking = times_alone.find(rest_key);
  trace::StepTrace step = sim::simulate(
      plan_, cluster, cost::Scaled(alone, what_if.compute, what_if.link), cost::Scaled(beside, what_if.compute, what_if.link),
      {.rest = long_rest, .costs = waking == times_alone.end() ? Nanoseconds(0) : waking->second});
  if (const auto rest = times.find(Calibration::step_key); rest != times.end()) {
    step.duration += rest->second;
  }
  return step;
}

std::string Simulation::cost_origin() const {
  const std::string base = job_.own().duration ? job_.own().duration_origin
                           : calibration_      ? cost::Measured({}, job_.cluster(), calibration_->where()).origin()
                                               : cost::Roofline(job_.cluster(), job_.software()).origin();
  return what_if_.changes() ? base + "; changed by " + job_.words().what_if : base;
}

std::vector<Sensitivity> sensitivities(const Simulation& simulation, Nanoseconds step) {
  std::vector<Sensitivity> list;
  const auto turn = [&](std::string knob, auto change) {
    WhatIf what_if = simulation.what_if();
    change(what_if);
    const Nanoseconds time = simulation.step(what_if).duration;
    const double gain = step.count == 0 ? 0 : 1 - static_cast<double>(time.count) / static_cast<double>(step.count);
    list.push_back({std::move(knob), time, gain});
  };
  turn("compute twice as fast", [](WhatIf& what_if) { what_if.compute *= 2; });
  turn("links twice as wide", [](WhatIf& what_if) { what_if.link *= 2; });
  turn("half the latency of links", [](WhatIf& what_if) {
    what_if.latency /= 2;
    what_if.longer = Nanoseconds(what_if.longer.count / 2);
  });
  std::stable_sort(list.begin(), list.end(), [](const Sensitivity& a, const Sensitivity& b) { return a.gain > b.gain; });
  return list;
}

}  // namespace baton::lab
