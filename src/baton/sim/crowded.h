#pragma once

#include "baton/sim/simulate.h"

namespace baton::sim {

/// Devices that share a memory slow each other down while they work at the same time. `alone` gives the times of a device
/// while all others rest, `beside` those while all others do the same.
///
/// Walks the plan, sees what share of each task's time other devices were computing too, gives each task a time in
/// proportion between the two, and walks again: so often that times settle, which they do since every walk moves them less.
trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& alone,
                          const cost::CostModel& beside);

}  // namespace baton::sim
