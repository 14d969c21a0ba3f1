#include "baton/devices/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "baton/base/error.h"
#include "baton/cuda/cuda.h"
#include "baton/ranks/pack.h"

namespace baton::devices {
namespace {

/// A GPU or a part of it, as its rank describes it to the others.
struct PackedGpu {
  cluster::GpuPart part;
  Bytes memory;
  std::string id;
};

void pack(ranks::Packer& packer, const PackedGpu& gpu) { packer.add(gpu.part).add(gpu.memory).add_text(gpu.id); }

PackedGpu take_gpu(ranks::Unpacker& unpacker) {
  PackedGpu gpu;
  gpu.part = unpacker.take<cluster::GpuPart>();
  gpu.memory = unpacker.take<Bytes>();
  gpu.id = unpacker.take_text();
  return gpu;
}

}  // namespace

std::vector<cluster::Gpu> find_gpus() { return cuda::find_gpus(); }

bool has_gpu() { return cuda::has_gpu(); }

std::vector<cluster::Device> open_devices(const cluster::DeviceNames& names, const cluster::Machine& machine,
                                          std::optional<Bytes> memory) {
  if (const std::optional<cluster::GpuNames> gpus = cluster::gpus_of(names)) {
    return cluster::gpu_devices(*gpus, find_gpus(), memory);
  }
  if (const auto* sets = std::get_if<cluster::CoreSets>(&names)) {
    return cluster::core_devices(*sets, machine, memory);
  }
  const auto* cpus = std::get_if<cluster::CpuNames>(&names);
  return cpus != nullptr ? cluster::cpu_devices(*cpus, machine, memory)
                         : cluster::parse_devices(std::get<std::string>(names), machine, memory);
}

cluster::Machine share_of(const cluster::Machine& machine, ranks::World& world) {
  const std::vector<ranks::Blob> all = world.all_gather(std::as_bytes(std::span(machine.cores)));
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

std::vector<cluster::Device> open_devices_of_ranks(const cluster::DeviceNames& names, const cluster::Machine& share,
                                                   std::optional<Bytes> memory, ranks::World& world) {
  if (world.alone()) {
    return open_devices(names, share, memory);
  }
  if (const std::optional<cluster::GpuNames> gpus = cluster::gpus_of(names)) {
    return open_gpus_of_ranks(*gpus, find_gpus(), memory, world);
  }
  ranks::Packer own;
  for (const cluster::Device& device : open_devices(names, share, memory)) {
    own.add(device.memory).add(device.cores.size());
    for (const int core : device.cores) {
      own.add(core);
    }
  }
  const std::vector<ranks::Blob> all = world.all_gather(own.span());
  std::vector<cluster::Device> devices;
  for (std::size_t r = 0; r < all.size(); ++r) {
    ranks::Unpacker unpacker(all[r]);
    while (!unpacker.empty() && unpacker.good()) {
      cluster::Device device{.name = fmt::format("cpu:{}", devices.size()),
                             .memory = unpacker.take<Bytes>(),
                             .node = world.hosts()[r].node,
                             .machine = world.hosts()[r].machine,
                             .rank = static_cast<int>(r),
                             .product = "cpu"};
      for (auto cores = unpacker.take<std::size_t>(); cores > 0 && unpacker.good(); --cores) {
        device.cores.push_back(unpacker.take<int>());
      }
      devices.push_back(std::move(device));
    }
    check(unpacker.good(), "the devices of rank {} are cut short", r);
  }
  return devices;
}

std::vector<cluster::Device> open_gpus_of_ranks(const cluster::GpuNames& names, std::span<const cluster::Gpu> gpus,
                                                std::optional<Bytes> memory, ranks::World& world) {
  const std::vector<ranks::RankHost>& hosts = world.hosts();
  const auto mine = static_cast<std::size_t>(world.rank());
  const auto local_rank = static_cast<std::size_t>(
      std::count_if(hosts.begin(), hosts.begin() + world.rank(),
                    [&](const ranks::RankHost& host) { return host.machine == hosts[mine].machine; }));
  ranks::Packer own;
  for (const cluster::Device& device : cluster::gpu_devices(cluster::gpus_of_rank(names, gpus.size(), local_rank), gpus)) {
    pack(own, {*device.gpu, device.memory, gpus[static_cast<std::size_t>(device.gpu->ordinal)].id});
  }
  const std::vector<ranks::Blob> all = world.all_gather(own.span());
  std::vector<cluster::Device> devices;
  std::map<std::pair<int, std::string>, int> units;  // by machine and GPU
  std::map<int, std::set<int>> sharing;              // by unit, its ranks
  for (std::size_t r = 0; r < all.size(); ++r) {
    ranks::Unpacker unpacker(all[r]);
    while (!unpacker.empty() && unpacker.good()) {
      PackedGpu one = take_gpu(unpacker);
      one.part.unit = units.emplace(std::pair(hosts[r].machine, one.id), static_cast<int>(units.size())).first->second;
      sharing[one.part.unit].insert(static_cast<int>(r));
      devices.push_back({.name = fmt::format("cuda:{}", devices.size()),
                         .cores = {},
                         .memory = memory.value_or(one.memory),
                         .node = hosts[r].node,
                         .machine = hosts[r].machine,
                         .rank = static_cast<int>(r),
                         .shared_lanes = false,
                         .gpu = one.part,
                         .product = "cuda",
                         .kind = cluster::DeviceKind::gpu});
    }
    check(unpacker.good(), "the GPUs of rank {} are cut short", r);
  }
  for (cluster::Device& device : devices) {
    if (!memory) {
      device.memory = Bytes(device.memory.count / static_cast<std::int64_t>(sharing[device.gpu->unit].size()));
    }
  }
  return devices;
}

const BackendKind& backend_for(const std::vector<cluster::Device>& devices, std::string_view wanted) {
  const bool gpu = devices.front().gpu.has_value();
  if (wanted.empty()) {
    const std::vector<BackendKind>& all = backends();
    return *std::find_if(all.begin(), all.end(), [&](const BackendKind& kind) { return kind.runs_on_gpus == gpu; });
  }
  const BackendKind& named = backend_by_name(wanted);
  if (named.runs_on_gpus != gpu) {
    throw usage_error("the {} backend does not run on {}: choose --devices {}", wanted, devices.front().name, gpu ? "cpu" : "cuda");
  }
  return named;
}

}  // namespace baton::devices
