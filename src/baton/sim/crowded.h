#pragma once

#include "baton/sim/simulate.h"

namespace baton::sim {

/// Devices that share a memory slow each other down while they work at the same time. `alone` gives the times of a device
/// while all others rest, `beside` those while all others do the same.
///
/// Walks the plan, sees in what share of each task's time other devices were computing too, gives it a time between the two
/// accordingly, and walks again, several times: every walk moves the times less.
trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& alone,
                          const cost::CostModel& beside);

}  // namespace baton::sim
