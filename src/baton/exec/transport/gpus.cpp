#include "baton/exec/transport/gpus.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "baton/exec/transport/dealing.h"

namespace baton::exec {
namespace {

/// The devices of a meeting's members, by their rank in it.
std::vector<DeviceId> devices_of(const plan::Plan& plan, MeetingId meeting) {
  std::vector<DeviceId> devices(plan.members(meeting).size());
  for (const TaskId member : plan.members(meeting)) {
    devices[rank_of(plan[member])] = plan[member].device;
  }
  return devices;
}

}  // namespace

std::vector<Way> choose_ways(const plan::Plan& plan, const cluster::Cluster& cluster, bool has_nccl) {
  std::vector<Way> ways;
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
    ways.push_back(ranks.size() < 2 ? Way::here : whole && has_nccl ? Way::nccl : Way::staged);
  }
  return ways;
}

bool all_say(ranks::World& world, bool mine) {
  const std::array<std::byte, 1> word{static_cast<std::byte>(mine ? 1 : 0)};
  const std::vector<ranks::Blob> all = world.all_gather(word);
  return std::all_of(all.begin(), all.end(), [](const ranks::Blob& one) { return one[0] != std::byte{0}; });
}

std::vector<std::size_t> join_groups(const plan::Plan& plan, const std::vector<Way>& ways, const std::vector<int>& run_by,
                                     ranks::World& world, Joiner& joiner) {
  std::vector<std::size_t> group_of(ways.size(), 0);
  std::map<std::vector<std::uint32_t>, std::size_t> known;
  for (std::size_t m = 0; m < ways.size(); ++m) {
    if (ways[m] != Way::nccl) {
      continue;
    }
    const std::vector<DeviceId> devices = devices_of(plan, MeetingId(m));
    std::vector<std::uint32_t> key;
    std::vector<GroupMember> mine;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      key.push_back(devices[i].value);
      if (run_by[devices[i].index()] == world.rank()) {
        mine.push_back({i, devices[i]});
      }
    }
    const auto [found, fresh] = known.emplace(std::move(key), known.size());
    group_of[m] = found->second;
    if (!fresh) {
      continue;
    }
    const int root = run_by[devices[0].index()];
    ranks::Blob id = world.rank() == root ? joiner.make_id() : ranks::Blob();
    world.broadcast(id, root);
    if (!mine.empty()) {
      joiner.join(found->second, id, devices.size(), mine);
    }
  }
  return group_of;
}

}  // namespace baton::exec
