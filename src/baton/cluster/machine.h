#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/core_sets.h"

namespace baton::cluster {

/// This machine, as the process may use it.
struct Machine {
  std::string host;
  std::string cpu;         // the processor's name
  std::vector<int> cores;  // the cores that this process may run on, one logical processor per physical core
  Bytes memory;
  Bytes cache;  // the largest cache, once
};

/// Asks the operating system. Costs some milliseconds.
Machine probe();

/// One of `count` equal parts of it, numbered from 0: consecutive cores (one shared core if there are too few) and its share
/// of the memory.
Machine part_of(const Machine& machine, std::size_t part, std::size_t count);

/// Memory is divided evenly, or is `memory` per device if that is given.
std::vector<Device> core_devices(const CoreSets& sets, const Machine& machine, std::optional<Bytes> memory = std::nullopt);

std::vector<Device> cpu_devices(const CpuNames& names, const Machine& machine, std::optional<Bytes> memory = std::nullopt);

/// The devices that `text` names on this machine:
///   cpu            one device of all cores
///   cpu:4          four devices that share the cores evenly (taking turns when there are fewer cores)
///   cpu:0-3,4-7    one device for each range of cores; 0+2 joins ranges; a single core is written 2-2, or 2 if there are others
std::vector<Device> parse_devices(std::string_view text, const Machine& machine, std::optional<Bytes> memory = std::nullopt);

}  // namespace baton::cluster
