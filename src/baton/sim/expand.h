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

/// If a device of the plan stands for several of the cluster: per device of the plan, its devices of the cluster, equally many
/// each. Empty: each device stands for itself.
using StandsFor = std::vector<std::vector<DeviceId>>;

/// One stage of a meeting: first its latency passes, then all its loads flow at the same rate, so that the most loaded link
/// decides how long it takes. Legs run one after the other.
struct Leg {
  Nanoseconds latency;
  std::vector<Load> loads;
};

/// The loads of a meeting on the links, by the algorithm. With latency α and bandwidth β everywhere and no other traffic,
/// n members with S bytes each take
///                 ring                     tree                  direct
///   all_reduce    2 (n−1) (α + S/(nβ))     2 ⌈log₂ n⌉ (α + S/β)  2 (α + (n−1) S/(nβ))
///   broadcast     as direct                ⌈log₂ n⌉ (α + S/β)    α + (n−1) S/β
///   reduce        as broadcast
///   reduce_scatter, all_gather
///                 half an all_reduce       as a ring             half an all_reduce
/// and a transfer takes α + S/β. The latencies of a leg's rounds are taken together before its bytes flow. A broadcast and a
/// reduction go through their root's port, as they are run and counted, unless in a tree. Hierarchical is a ring within every node,
/// rings between the nodes (one for each place in a node, each with its part), and a ring within every node again; but an
/// all_reduce within a node whose switch sums takes S over the rate of that. What else a ring costs is in Wiring.
///
/// If devices stand for several, a collective with a member in each of them is one collective between them; any other meeting
/// stands for as many meetings that run at the same time and share the links.
std::vector<Leg> expand(const plan::Plan& plan, MeetingId meeting, const Links& links, const cluster::Cluster& cluster,
                        const StandsFor& stands_for = {});

}  // namespace baton::sim
