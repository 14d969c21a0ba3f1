#pragma once

#include <cstdint>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"
#include "baton/strategy/step.h"

/// What messages take of the cores that compute beside them.
namespace baton::measure {

/// On each device `products` alike, one after the other, and beside them `gathers` of `bytes`, one after the other: of messages
/// that nobody has to add up.
plan::Plan products_beside_messages(std::int64_t products, std::int64_t gathers, std::int64_t bytes,
                                    const cluster::Cluster& cluster, const plan::Target& target);

/// The share of a core by which products are slower while messages use the link both ways, which carries `bandwidth` bytes per
/// second: the mean over the devices; 0 where they are no slower, or there is no other rank to send anything to. All ranks call it,
/// and the first has the figure that counts.
double measure_core_share(const cluster::Cluster& cluster, const exec::Backend& backend, double bandwidth, ranks::World& world);

}  // namespace baton::measure
