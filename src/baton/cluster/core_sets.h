#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton::cluster {

/// Devices by their cores.
struct CoreSets {
  std::vector<std::vector<int>> devices;
  bool operator==(const CoreSets&) const = default;
};

/// Consecutive cores, both ends included.
struct CoreRange {
  int first = 0;
  int last = 0;
  bool operator==(const CoreRange&) const = default;
};

/// The most devices that share the cores of a machine.
inline constexpr std::size_t most_cpu_devices = 4096;

/// Devices of cores as a user names them. Only a machine can tell whether it has these cores.
struct CpuNames {
  std::size_t count = 1;                            // the number of devices that share all cores, if there are no ranges
  std::vector<std::vector<CoreRange>> ranges = {};  // by device
  std::size_t devices() const { return ranges.empty() ? count : ranges.size(); }
  bool operator==(const CpuNames&) const = default;
};

/// A usage error says what it takes:
///   cpu            one device of all cores
///   cpu:4          four devices that share the cores evenly
///   cpu:0-3,4-7    one device for each range of cores; 0+2 joins ranges; a single core is written 2-2, or 2 if there are others
CpuNames parse_cpu_names(std::string_view text);

/// As `parse_devices` reads them: cpu:4, cpu:0-3+5-5,6-7.
std::string to_text(const CpuNames& names);
/// The same, each core by itself: cpu:0-0+1-1,2-2.
std::string to_text(const CoreSets& sets);

}  // namespace baton::cluster
