#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

/// How meetings between GPUs of several ranks cross: the decisions that need no GPU.
namespace baton::exec {

enum class Way : std::uint8_t {
  here,    // one rank runs all members
  nccl,    // straight between GPUs
  staged,  // through the memory of the hosts, by the messages that devices on cores use
};

/// By meeting. NCCL takes only members that each have a whole GPU of their own; `has_nccl` says whether all ranks have it, and
/// want it.
std::vector<Way> choose_ways(const plan::Plan& plan, const cluster::Cluster& cluster, bool has_nccl);

/// Whether the value is true on every rank. All ranks call it.
bool all_say(ranks::World& world, bool mine);

/// A member of a set of GPUs that meet by NCCL, which this rank runs.
struct GroupMember {
  std::size_t member;  // its number in the set
  DeviceId device;
};

/// What joining takes of NCCL.
class Joiner {
 public:
  virtual ~Joiner() = default;
  /// A new, unique id for a set.
  virtual ranks::Blob make_id() = 0;
  /// Joins the members that this rank runs, all at once, to a set of `size`; returns when all of its ranks have.
  virtual void join(std::size_t group, const ranks::Blob& id, std::size_t size, const std::vector<GroupMember>& members) = 0;
};

/// Every set of devices that meet by NCCL comes together once, in the order of the plan's meetings on all ranks: the rank of its
/// first member makes an id and sends it to all. All ranks call it. Per meeting: the number of its set, if it has one.
std::vector<std::size_t> join_groups(const plan::Plan& plan, const std::vector<Way>& ways, const std::vector<int>& run_by,
                                     ranks::World& world, Joiner& joiner);

}  // namespace baton::exec
