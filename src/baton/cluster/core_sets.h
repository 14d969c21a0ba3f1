#pragma once

#include <string>
#include <vector>

namespace baton::cluster {

/// Devices by their cores.
struct CoreSets {
  std::vector<std::vector<int>> devices;
  bool operator==(const CoreSets&) const = default;
};

/// As `parse_devices` reads them, each core by itself: cpu:0-0+1-1,2-2.
std::string to_text(const CoreSets& sets);

}  // namespace baton::cluster
