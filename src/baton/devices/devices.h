#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/device_names.h"
#include "baton/cluster/machine.h"
#include "baton/devices/backends.h"
#include "baton/ranks/world.h"

namespace baton::devices {

/// The GPUs that this process may use. A usage error says why there are none: built without CUDA, no GPU, a driver that is too old.
std::vector<cluster::Gpu> find_gpus();
/// True if there is one; throws nothing.
bool has_gpu();

/// The devices of these names: cores of this machine (cluster/machine.h) or its GPUs (cluster/gpu.h),
/// which are looked for only then.
std::vector<cluster::Device> open_devices(const cluster::DeviceNames& names, const cluster::Machine& machine,
                                          std::optional<Bytes> memory = std::nullopt);

/// This rank's share of this machine: ranks that may use the same cores of one machine divide them
/// among themselves. All ranks call it.
cluster::Machine share_of(const cluster::Machine& machine, ranks::World& world);

/// The devices of all ranks, in the order of the ranks: `names` are each rank's on its own share of its
/// machine. All ranks call it and get the same.
std::vector<cluster::Device> open_devices_of_ranks(const cluster::DeviceNames& names, const cluster::Machine& share,
                                                   std::optional<Bytes> memory, ranks::World& world);
/// Opens the GPUs of all ranks; this rank's process sees `gpus`. Every GPU means one of them for each rank of a machine, in turn.
/// Ranks on the same GPU share its memory evenly.
std::vector<cluster::Device> open_gpus_of_ranks(const cluster::GpuNames& names, std::span<const cluster::Gpu> gpus,
                                                std::optional<Bytes> memory, ranks::World& world);

/// The backend for these devices: the one of the name `wanted`, or the first that runs them if that is empty; a usage error if
/// there is none of this name, or it cannot run them.
const BackendKind& backend_for(const std::vector<cluster::Device>& devices, std::string_view wanted);

}  // namespace baton::devices
