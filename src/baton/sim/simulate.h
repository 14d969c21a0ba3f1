#pragma once

#include <memory>

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"
#include "baton/plan/plan.h"
#include "baton/sim/expand.h"
#include "baton/trace/trace.h"

namespace baton::sim {

/// A plan made ready to be walked on a virtual clock of whole nanoseconds.
///
/// Tasks of a lane run in order, each after those it comes after; a meeting begins when its last member has come. Devices
/// whose lanes are apart run them side by side. Those whose lanes are shared serve them as the executor does: messages
/// first, one thing at a time; a member does its part of a meeting's copying and, with nothing else to do, helps the
/// others; devices on the same cores take turns. Bytes on links take as long as their share of the links allows, and no
/// less than an emulated link would.
///
/// A plan's device may stand for several of the cluster that all do the same: then only the links see them all.
///
/// Equal arguments give the same trace on any machine: what happens at one moment is handled in a fixed order.
class Simulator {
 public:
  /// The plan must obey `plan::verify`. Plan and cluster must outlive the simulator.
  Simulator(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost, const StandsFor& stands_for = {});
  ~Simulator();

  /// Walks one step, allocating nothing where `step` has been walked into before.
  void run(trace::StepTrace& step);

 private:
  class Walk;
  std::unique_ptr<Walk> walk_;
};

trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost,
                          const StandsFor& stands_for = {});

}  // namespace baton::sim
