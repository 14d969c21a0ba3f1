#include "baton/cuda/routes.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "baton/base/error.h"

namespace baton::cuda {
namespace {

/// The devices of a meeting's members, by their rank in it.
std::vector<DeviceId> devices_of(const plan::Plan& plan, MeetingId meeting) {
  std::vector<DeviceId> devices(plan.members(meeting).size());
  for (const TaskId member : plan.members(meeting)) {
    devices[plan::rank_of(plan[member])] = plan[member].device;
  }
  return devices;
}

}  // namespace

NcclReach wanted_reach(const char* word, bool has_nccl) {
  const std::string_view wanted = word == nullptr ? "" : word;
  if (wanted.empty()) {
    return has_nccl ? NcclReach::whole_gpus : NcclReach::nothing;
  }
  if (wanted == "staged") {
    return NcclReach::nothing;
  }
  if (wanted != "nccl") {
    throw usage_error("BATON_CUDA_RANKS is '{}': it may be staged or nccl, or not set", wanted);
  }
  if (!has_nccl) {
    throw usage_error("BATON_CUDA_RANKS is nccl, but libnccl.so.2 is not found: add its folder to LD_LIBRARY_PATH");
  }
  return NcclReach::all_ranks;
}

NcclReach agree_on(ranks::World& world, NcclReach mine) {
  const std::array<std::byte, 1> word{static_cast<std::byte>(mine)};
  const std::vector<ranks::Blob> all = world.all_gather(word);
  return std::accumulate(all.begin(), all.end(), mine,
                         [](NcclReach least, const ranks::Blob& one) { return std::min(least, static_cast<NcclReach>(one[0])); });
}

std::vector<std::pair<std::string, std::string>> host_variables(const ranks::World& world) {
  std::vector<std::pair<std::string, std::string>> variables{{"NCCL_HOSTID", fmt::format("baton-rank-{}", world.rank())}};
  const std::vector<ranks::RankHost>& hosts = world.hosts();
  if (std::all_of(hosts.begin(), hosts.end(), [&](const ranks::RankHost& host) { return host.node == hosts[0].node; })) {
    variables.emplace_back("NCCL_SOCKET_IFNAME", "lo");  // which NCCL otherwise leaves out
  }
  return variables;
}

std::vector<MeetingRoute> choose_routes(const plan::Plan& plan, const cluster::Cluster& cluster, NcclReach reach) {
  std::vector<MeetingRoute> routes;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    std::set<int> ranks;
    std::set<int> units;
    bool whole = true;
    const std::vector<DeviceId> devices = devices_of(plan, MeetingId(m));
    for (const DeviceId id : devices) {
      const cluster::Device& device = cluster.device(id);
      ranks.insert(device.rank);
      whole = whole && device.gpu && device.gpu->of == 1 && units.insert(device.gpu->unit).second;
    }
    const bool carried = (whole && reach >= NcclReach::whole_gpus) ||
                         (ranks.size() == devices.size() && reach == NcclReach::all_ranks);
    routes.push_back(ranks.size() < 2 ? MeetingRoute::here : carried ? MeetingRoute::nccl : MeetingRoute::staged);
  }
  return routes;
}

std::vector<std::size_t> join_groups(const plan::Plan& plan, const std::vector<MeetingRoute>& routes,
                                     const std::vector<int>& rank_of_device, ranks::World& world, CommunicatorFactory& factory) {
  std::vector<std::size_t> group_of(routes.size(), 0);
  std::map<std::vector<std::uint32_t>, std::size_t> known;
  for (std::size_t m = 0; m < routes.size(); ++m) {
    if (routes[m] != MeetingRoute::nccl) {
      continue;
    }
    const std::vector<DeviceId> devices = devices_of(plan, MeetingId(m));
    std::vector<std::uint32_t> key;
    std::vector<GroupMember> mine;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      key.push_back(devices[i].value);
      if (rank_of_device[devices[i].index()] == world.rank()) {
        mine.push_back({i, devices[i]});
      }
    }
    const auto [found, fresh] = known.emplace(std::move(key), known.size());
    group_of[m] = found->second;
    if (!fresh) {
      continue;
    }
    const int root = rank_of_device[devices[0].index()];
    ranks::Blob id = world.rank() == root ? factory.make_id() : ranks::Blob();
    world.broadcast(id, root);
    if (!mine.empty()) {
      factory.join(found->second, id, devices.size(), mine);
    }
  }
  return group_of;
}

}  // namespace baton::cuda
