#pragma once

#include <vector>

#include "baton/plan/plan.h"
#include "baton/sim/links.h"

namespace baton::sim {

/// Bytes that go over one link: `flows` messages of that size side by side.
struct Load {
  std::uint32_t link;
  double bytes;
  double flows = 1;
};

/// The further members of a collective that a folded plan leaves out: in other replicas, in other parts, or both.
enum class Reach : std::uint8_t { members, replicas, parts, all };

/// The devices of the cluster that each device of a plan stands for, all alike.
struct StandsFor {
  /// Per device of the plan, its devices of the cluster, equally many each: replica by replica, and in each part by part. Empty:
  /// each device stands for itself.
  std::vector<std::vector<DeviceId>> devices;
  std::size_t parts = 1;
  std::vector<Reach> reach;  // by meeting

  bool empty() const { return devices.empty(); }
  /// The number of devices of the cluster that each one stands for.
  std::size_t copies() const { return devices.empty() ? 1 : devices[0].size(); }
};

/// The members of the meetings that one meeting of the plan stands for, each list in order of rank. Meetings of other nodes are
/// left out: they share no link with the first and take as long.
std::vector<std::vector<DeviceId>> meetings_of(const plan::Plan& plan, MeetingId meeting, const cluster::Cluster& cluster,
                                               const StandsFor& stands_for);

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
/// all_reduce within a node whose switch sums takes S over the rate of the switch, and if the wiring has a quick protocol or trees,
/// the one that is fastest on idle links is used. Wiring has the further costs of a ring.
///
/// If devices stand for several, a meeting stands for as many meetings (`meetings_of`) that run at the same time and share the
/// links.
std::vector<Leg> expand(const plan::Plan& plan, MeetingId meeting, const Links& links, const cluster::Cluster& cluster,
                        const StandsFor& stands_for = {});

}  // namespace baton::sim
