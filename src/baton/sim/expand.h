#pragma once

#include <vector>

#include "baton/plan/plan.h"
#include "baton/sim/links.h"

namespace baton::sim {

/// Bytes that go over one link; `flows` messages of that size side by side.
struct Load {
  std::uint32_t link;
  double bytes;
  double flows = 1;
};

/// Where a plan's device stands for several of the cluster: by device of the plan, those of the cluster, as many each. Empty:
/// each for itself.
using StandsFor = std::vector<std::vector<DeviceId>>;

/// A stretch of a meeting: first its latency passes, then all its loads flow at one pace, so that the most burdened link
/// decides how long it takes. Legs follow one another.
struct Leg {
  Nanoseconds latency;
  std::vector<Load> loads;
};

/// What a meeting puts on the links, by the algorithm. With latency α and bandwidth β everywhere and nothing else under
/// way, n members with S bytes each take
///                 ring                     tree                  direct
///   all_reduce    2 (n−1) (α + S/(nβ))     2 ⌈log₂ n⌉ (α + S/β)  2 (α + (n−1) S/(nβ))
///   broadcast     as direct                ⌈log₂ n⌉ (α + S/β)    α + (n−1) S/β
///   reduce        as broadcast
///   reduce_scatter, all_gather
///                 half an all_reduce       as a ring             half an all_reduce
/// and a transfer takes α + S/β. The latencies of a leg's rounds are taken together before its bytes flow. A broadcast and a
/// reduction go through their root's port, as they are run and counted, unless in a tree. Hierarchical is a ring within every node,
/// rings between the nodes (one for each place in a node, each with its part), and a ring within every node again.
///
/// Where devices stand for several, a collective that has a member in each of them is one between those; any other meeting is
/// one of as many that take place at once, in each other's way.
std::vector<Leg> expand(const plan::Plan& plan, MeetingId meeting, const Links& links, const cluster::Cluster& cluster,
                        const StandsFor& stands_for = {});

}  // namespace baton::sim
