#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

/// Decides how meetings between GPUs of several ranks cross. No GPU is needed for that.
namespace baton::cuda {

/// The way that the messages of a meeting take.
enum class MeetingRoute : std::uint8_t {
  here,    // one rank runs all members
  nccl,    // straight between GPUs
  staged,  // through the memory of the hosts, by the messages that devices on cores use
};

/// The meetings that NCCL carries, from the fewest to the most.
enum class NcclReach : std::uint8_t {
  nothing,     // it is not here, or everything is to be staged
  whole_gpus,  // meetings whose members each have a whole GPU of their own
  all_ranks,   // for tests, also meetings of one member per rank that share a GPU, whole or in parts: NCCL takes them for GPUs of
               // different hosts
};

/// The meetings that the value of BATON_CUDA_RANKS (null: it is not set) asks NCCL to carry. A usage error if the value is unknown,
/// or asks for NCCL and there is none.
NcclReach wanted_reach(const char* word, bool has_nccl);
/// The least that any rank says. All ranks call it.
NcclReach agree_on(ranks::World& world, NcclReach mine);
/// Environment variables that make NCCL treat each rank as a host. Those that are not set are to be set before NCCL's first call.
std::vector<std::pair<std::string, std::string>> host_variables(const ranks::World& world);

/// The route of each meeting of the plan, by meeting.
std::vector<MeetingRoute> choose_routes(const plan::Plan& plan, const cluster::Cluster& cluster, NcclReach reach);

/// A member of a set of GPUs that meet by NCCL, which this rank runs.
struct GroupMember {
  std::size_t member;  // its number in the set
  DeviceId device;
};

/// The calls of NCCL by which ranks join.
class CommunicatorFactory {
 public:
  virtual ~CommunicatorFactory() = default;
  /// A new, unique id for a set.
  virtual ranks::Blob make_id() = 0;
  /// Joins the members that this rank runs, all at once, to a set of `size`; returns when all of its ranks have.
  virtual void join(std::size_t group, const ranks::Blob& id, std::size_t size, const std::vector<GroupMember>& members) = 0;
};

/// Every set of devices that meet by NCCL comes together once, in the order of the plan's meetings on all ranks: the rank of its
/// first member makes an id and sends it to all. All ranks call it. Per meeting: the number of its set, if it has one.
std::vector<std::size_t> join_groups(const plan::Plan& plan, const std::vector<MeetingRoute>& routes,
                                     const std::vector<int>& rank_of_device, ranks::World& world, CommunicatorFactory& factory);

}  // namespace baton::cuda
