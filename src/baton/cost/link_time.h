#pragma once

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"

namespace baton::cost {

/// The time of a meeting on links of this kind without other traffic, after all members have arrived.
///   transfer     α + S/β
///   all_reduce   2 (n−1) (α + S/(nβ))       a ring
///   reduce_scatter, all_gather   (n−1) (α + S/(nβ)), a ring
///   broadcast    α + (n−1) S/β              one after the other out of rank 0's port
///   reduce       α + (n−1) S/β              likewise into it
/// Valid if the links, and not the devices' own copying, are the bottleneck.
Nanoseconds link_time(const plan::Plan& plan, MeetingId meeting, const cluster::Link& link);

}  // namespace baton::cost
