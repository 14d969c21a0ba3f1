#pragma once

#include <optional>
#include <string>
#include <variant>

#include "baton/cluster/core_sets.h"
#include "baton/cluster/gpu.h"

namespace baton::cluster {

/// Devices of this machine: as a user names them, for `parse_devices` or `parse_gpu_names`, or as values.
using DeviceNames = std::variant<std::string, CpuNames, CoreSets, GpuNames>;

/// nullopt if they do not name GPUs.
inline std::optional<GpuNames> gpus_of(const DeviceNames& names) {
  if (const auto* text = std::get_if<std::string>(&names)) {
    return names_gpus(*text) ? std::optional(parse_gpu_names(*text)) : std::nullopt;
  }
  const auto* gpus = std::get_if<GpuNames>(&names);
  return gpus == nullptr ? std::nullopt : std::optional(*gpus);
}

}  // namespace baton::cluster
