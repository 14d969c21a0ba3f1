#include "baton/exec/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/exec/backend/cuda/cuda.h"

namespace baton::exec {
namespace {

/// What a rank tells the others of one of its devices.
using GpuId = std::array<char, 64>;
struct PackedGpu {
  cluster::GpuPart part;
  Bytes memory;
  GpuId id;
};

}  // namespace

std::vector<cluster::Device> open_devices(std::string_view text, const cluster::Machine& machine, std::optional<Bytes> memory) {
  return cluster::names_gpus(text) ? cluster::parse_gpu_devices(text, find_gpus(), memory)
                                   : cluster::parse_devices(text, machine, memory);
}

cluster::Machine share_of(const cluster::Machine& machine, World& world) {
  std::string cores;
  for (const int core : machine.cores) {
    cores += fmt::format("{},", core);
  }
  const std::vector<Blob> all = world.all_gather(to_blob(cores));
  const auto mine = static_cast<std::size_t>(world.rank());
  std::size_t sharing = 0;
  std::size_t neighbours = 0;
  std::size_t part = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool here = world.hosts()[r].machine == world.hosts()[mine].machine;
    const bool shares = here && all[r] == all[mine];
    neighbours += here ? 1 : 0;
    sharing += shares ? 1 : 0;
    part += shares && r < mine ? 1 : 0;
  }
  cluster::Machine share = cluster::part_of(machine, part, sharing);
  share.memory = Bytes(machine.memory.count / static_cast<std::int64_t>(neighbours));
  return share;
}

std::vector<cluster::Device> open_devices_of_ranks(std::string_view text, const cluster::Machine& share,
                                                   std::optional<Bytes> memory, World& world) {
  if (world.alone()) {
    return open_devices(text, share, memory);
  }
  if (cluster::names_gpus(text)) {
    return open_gpus_of_ranks(text, find_gpus(), memory, world);
  }
  // Each device as its memory, its number of cores and these.
  std::vector<std::int64_t> words;
  for (const cluster::Device& device : cluster::parse_devices(text, share, memory)) {
    words.push_back(device.memory.count);
    words.push_back(static_cast<std::int64_t>(device.cores.size()));
    words.insert(words.end(), device.cores.begin(), device.cores.end());
  }
  const std::vector<Blob> all = world.all_gather(std::as_bytes(std::span(words)));
  std::vector<cluster::Device> devices;
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<std::int64_t> list(all[r].size() / sizeof(std::int64_t));
    std::memcpy(list.data(), all[r].data(), all[r].size());
    for (auto word = list.begin(); word != list.end();) {
      cluster::Device device{.name = fmt::format("cpu:{}", devices.size()),
                             .memory = Bytes(*word++),
                             .node = world.hosts()[r].node,
                             .machine = world.hosts()[r].machine,
                             .rank = static_cast<int>(r)};
      const std::int64_t cores = *word++;
      device.cores.assign(word, word + cores);
      word += cores;
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

std::vector<cluster::Device> open_gpus_of_ranks(std::string_view text, std::span<const cluster::Gpu> gpus,
                                                std::optional<Bytes> memory, World& world) {
  const std::vector<RankHost>& hosts = world.hosts();
  const auto mine = static_cast<std::size_t>(world.rank());
  const auto local_rank = static_cast<std::size_t>(std::count_if(
      hosts.begin(), hosts.begin() + world.rank(), [&](const RankHost& host) { return host.machine == hosts[mine].machine; }));
  std::vector<PackedGpu> own;
  for (const cluster::Device& device :
       cluster::parse_gpu_devices(cluster::gpu_words_of_rank(text, gpus.size(), local_rank), gpus)) {
    own.push_back({*device.gpu, device.memory, {}});
    const std::string& id = gpus[static_cast<std::size_t>(device.gpu->ordinal)].id;
    std::copy_n(id.begin(), std::min(id.size(), own.back().id.size()), own.back().id.begin());
  }
  const std::vector<Blob> all = world.all_gather(std::as_bytes(std::span(own)));
  std::vector<cluster::Device> devices;
  std::map<std::pair<int, GpuId>, int> units;  // by machine and GPU
  std::map<int, std::set<int>> sharing;        // by unit, its ranks
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::vector<PackedGpu> list(all[r].size() / sizeof(PackedGpu));
    std::memcpy(list.data(), all[r].data(), all[r].size());
    for (PackedGpu& one : list) {
      one.part.unit = units.emplace(std::pair(hosts[r].machine, one.id), static_cast<int>(units.size())).first->second;
      sharing[one.part.unit].insert(static_cast<int>(r));
      devices.push_back({.name = fmt::format("cuda:{}", devices.size()),
                         .cores = {},
                         .memory = memory.value_or(one.memory),
                         .node = hosts[r].node,
                         .machine = hosts[r].machine,
                         .rank = static_cast<int>(r),
                         .shared_lanes = false,
                         .gpu = one.part});
    }
  }
  for (cluster::Device& device : devices) {
    if (!memory) {
      device.memory = Bytes(device.memory.count / static_cast<std::int64_t>(sharing[device.gpu->unit].size()));
    }
  }
  return devices;
}

std::string backend_for(const std::vector<cluster::Device>& devices, const std::string& wanted) {
  const bool gpu = devices.front().gpu.has_value();
  if (wanted.empty()) {
    return gpu ? "cuda" : "cpu";
  }
  if ((canonical(wanted) == "cuda") != gpu) {
    throw usage_error("the {} backend does not run on {}: choose --devices {}", wanted, devices.front().name, gpu ? "cpu" : "cuda");
  }
  return wanted;
}

}  // namespace baton::exec
