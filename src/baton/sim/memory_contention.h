#pragma once

#include "baton/sim/simulate.h"

namespace baton::sim {

/// The extra time of the first product of a device after it has computed none for at least `rest`.
struct WakingUp {
  Nanoseconds rest;
  Nanoseconds costs;
};

/// Devices that share a memory slow each other down while they work at the same time. `alone` gives the times of a device
/// while all others rest, `beside` those while all others do the same.
///
/// Walks the plan, sees in what share of each task's time other devices were computing too and which products came after a
/// rest, gives tasks their times accordingly, and walks again, several times: every walk moves the times less. Steps follow one
/// another, so that a rest may have begun in the step before.
trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& alone,
                          const cost::CostModel& beside, const WakingUp& waking_up = {});

}  // namespace baton::sim
