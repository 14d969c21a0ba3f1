#pragma once

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"

namespace baton::cost {

/// How long the members of a meeting need on links of that kind that carry nothing else, once all have come.
///   transfer     α + S/β
///   all_reduce   2 (n−1) (α + S/(nβ))       a ring
///   reduce_scatter, all_gather   (n−1) (α + S/(nβ)), a ring
///   broadcast    α + (n−1) S/β              one after the other out of rank 0's port
///   reduce       α + (n−1) S/β              likewise into it
/// It holds while links, and not the devices' own copying, are what takes the time.
Nanoseconds link_time(const plan::Plan& plan, MeetingId meeting, const cluster::Link& link);

}  // namespace baton::cost
