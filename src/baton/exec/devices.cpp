#include "baton/exec/devices.h"

#include <fmt/format.h>

#include <cstring>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/exec/backend/cuda/cuda.h"

namespace baton::exec {

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
    const bool here = world.places()[r].machine == world.places()[mine].machine;
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
    throw usage_error(
        "GPUs do not run under several ranks yet: start baton once, without a launcher, on the GPUs of one "
        "machine");
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
                             .node = world.places()[r].node,
                             .machine = world.places()[r].machine,
                             .rank = static_cast<int>(r)};
      const std::int64_t cores = *word++;
      device.cores.assign(word, word + cores);
      word += cores;
      devices.push_back(std::move(device));
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
