#include "baton/cluster/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>

#include "baton/base/divide.h"
#include "baton/base/error.h"
#include "baton/base/host.h"
#include "baton/base/memory.h"
#include "baton/base/text.h"

namespace baton::cluster {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Topology load_topology() {
  require_memory(Bytes(std::int64_t{16} << 20));
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    throw failure("the machine's cores cannot be found: hwloc does not start");
  }
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) {
    throw failure("the machine's cores cannot be found: hwloc cannot read the topology");
  }
  return topology;
}

std::string processor_name(hwloc_topology_t topology) {
  for (hwloc_obj_t object : {hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0), hwloc_get_root_obj(topology)}) {
    const char* name = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
    if (name != nullptr) {
      return name;
    }
  }
  return "unknown processor";
}

/// The memory of the system, or the limit of the process's control group if that is less. (The sum over memory nodes is less if a
/// virtual machine's memory grows as it is used.)
Bytes physical_memory() {
  Bytes memory(static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  std::ifstream group("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;
  if (group >> limit && limit > 0) {
    memory = std::min(memory, Bytes(limit));
  }
  return memory;
}

/// The cores of a device; a usage error names one that the machine does not have, or that is named twice.
std::vector<int> cores_of(const std::vector<CoreRange>& ranges, const Machine& machine) {
  std::vector<int> cores;
  for (const CoreRange& range : ranges) {
    for (int core = range.first; core <= range.last; ++core) {
      if (!std::binary_search(machine.cores.begin(), machine.cores.end(), core)) {
        throw usage_error("there is no core {} here: this process may use {}", core, fmt::join(machine.cores, ", "));
      }
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        throw usage_error("--devices names core {} twice for one device", core);
      }
      cores.push_back(core);
    }
  }
  return cores;
}

/// `count` devices over the cores, in order: a run of cores each, or several devices per core.
std::vector<std::vector<int>> share(const std::vector<int>& cores, std::size_t count) {
  std::vector<std::vector<int>> parts(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Range run = divide(static_cast<std::int64_t>(cores.size()), static_cast<std::int64_t>(count),
                             static_cast<std::int64_t>(i), Remainder::spread);
    parts[i].assign(cores.begin() + run.begin, cores.begin() + std::max(run.begin + 1, run.end));
  }
  return parts;
}

}  // namespace

Machine probe() {
  const Topology topology = load_topology();
  Machine machine;
  machine.host = host_name();
  machine.cpu = processor_name(topology.get());
  const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology.get());
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> bound(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  const bool has_binding = hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0;
  // One logical processor of each physical core: a second would share its arithmetic.
  std::set<hwloc_obj_t> taken;
  int core = -1;
  while ((core = hwloc_bitmap_next(allowed, core)) >= 0) {
    if (has_binding && hwloc_bitmap_isset(bound.get(), static_cast<unsigned>(core)) == 0) {
      continue;
    }
    hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology.get(), static_cast<unsigned>(core));
    hwloc_obj_t physical = unit == nullptr ? nullptr : hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unit);
    if (physical == nullptr || taken.insert(physical).second) {
      machine.cores.push_back(core);
    }
  }
  check(!machine.cores.empty(), "this process may run on no core");
  machine.memory = physical_memory();
  for (hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(topology.get(), static_cast<unsigned>(machine.cores[0]));
       object != nullptr; object = object->parent) {
    if (hwloc_obj_type_is_dcache(object->type) != 0) {
      machine.cache = std::max(machine.cache, Bytes(static_cast<std::int64_t>(object->attr->cache.size)));
    }
  }
  return machine;
}

Machine part_of(const Machine& machine, std::size_t part, std::size_t count) {
  Machine one = machine;
  one.cores = share(machine.cores, count)[part];
  one.memory = Bytes(machine.memory.count / static_cast<std::int64_t>(count));
  return one;
}

std::vector<Device> core_devices(const CoreSets& sets, const Machine& machine, std::optional<Bytes> memory) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < sets.devices.size(); ++i) {
    for (const int core : sets.devices[i]) {
      check(std::find(machine.cores.begin(), machine.cores.end(), core) != machine.cores.end(), "there is no core {} here", core);
    }
    const Bytes part(machine.memory.count / static_cast<std::int64_t>(sets.devices.size()));
    devices.push_back(
        {.name = fmt::format("cpu:{}", i), .cores = sets.devices[i], .memory = memory.value_or(part), .product = "cpu"});
  }
  return devices;
}

std::vector<Device> parse_devices(std::string_view text, const Machine& machine, std::optional<Bytes> memory) {
  return cpu_devices(parse_cpu_names(text), machine, memory);
}

std::vector<Device> cpu_devices(const CpuNames& names, const Machine& machine, std::optional<Bytes> memory) {
  CoreSets sets;
  for (const std::vector<CoreRange>& ranges : names.ranges) {
    sets.devices.push_back(cores_of(ranges, machine));
  }
  if (names.ranges.empty()) {
    if (names.count < 1 || names.count > most_cpu_devices) {
      throw usage_error("the number of devices is '{}', but must be a whole number from 1 to {}", names.count, most_cpu_devices);
    }
    sets.devices = share(machine.cores, names.count);
  }
  return core_devices(sets, machine, memory);
}

}  // namespace baton::cluster
