#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/machine.h"

namespace baton::exec {

/// The devices that `text` names: cores of this machine (cluster/machine.h) or its GPUs (cluster/gpu.h), which are looked for
/// only then.
std::vector<cluster::Device> open_devices(std::string_view text, const cluster::Machine& machine,
                                          std::optional<Bytes> memory = std::nullopt);

/// The backend that runs such devices when nobody names one; a usage error where `wanted` names one that cannot.
std::string backend_for(const std::vector<cluster::Device>& devices, const std::string& wanted);

}  // namespace baton::exec
