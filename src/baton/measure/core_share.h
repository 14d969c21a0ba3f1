#pragma once

#include <cstdint>
#include <memory>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"
#include "baton/strategy/step.h"

/// The share of the cores that messages take from computing.
namespace baton::measure {

/// A plan with `products` equal products on each device, one after the other, and in parallel `gathers` all_gathers of `bytes`:
/// messages that need no sums.
plan::Plan products_beside_messages(std::int64_t products, std::int64_t gathers, std::int64_t bytes,
                                    const cluster::Cluster& cluster, const plan::Target& target);

/// The share of a core by which products are slower while messages use the link both ways, which carries `bandwidth` bytes per
/// second: the mean over the devices; 0 if they are not slower, or if there is no other rank. All ranks call it;
/// the figure of rank 0 is the result.
double measure_core_share(const cluster::Cluster& cluster, const exec::Backend& backend, double bandwidth,
                          const std::shared_ptr<ranks::World>& world);

}  // namespace baton::measure
