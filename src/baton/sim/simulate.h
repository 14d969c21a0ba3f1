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
/// Tasks of a lane run in order, each after its dependencies; a meeting starts when its last member has arrived. Devices
/// with separate lanes run them in parallel. Devices with shared lanes serve them as the executor does: messages first,
/// one task at a time; a member does its share of a meeting's copying and, if it has nothing else to do, helps the
/// others; devices on the same cores take turns. On parts of a GPU collectives take turns with computing in the same way, and
/// messages between two parts run in parallel. Bytes on links take as long as their share of the links allows, and at
/// least as long as on an emulated link.
///
/// Hosts issue the tasks of devices with separate lanes one after the other, in the plan's order, ahead of the devices; a cost
/// model may say that this takes time (`issuing`), and for which tasks a host waits.
///
/// A device of the plan may stand for several identical ones of the cluster: then only the links see all of them.
///
/// Equal arguments give the same trace on any machine: simultaneous events are handled in a fixed order.
class Simulator {
 public:
  /// The plan must pass `plan::verify`. Of the cluster and the costs nothing is kept.
  Simulator(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost, const StandsFor& stands_for = {});
  ~Simulator();

  /// Walks one step. Allocates nothing if `step` has been filled by an earlier walk.
  void run(trace::StepTrace& step);

 private:
  class Walk;
  std::unique_ptr<Walk> walk_;
};

trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost,
                          const StandsFor& stands_for = {});

}  // namespace baton::sim
