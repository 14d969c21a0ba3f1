#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::cluster {

/// A GPU as the process sees it.
struct Gpu {
  std::string name;
  Bytes memory;  // free when it was queried
  int multiprocessors = 0;
  std::string id = {};  // the same in every process, unique on the machine
};

/// The GPUs that are devices.
struct GpuNames {
  std::vector<int> numbers = {};  // empty: every GPU
  int parts = 0;                  // the number of parts into which the one GPU is cut; 0: GPUs are whole
  int used = 0;                   // how many of the parts are devices; 0: all
  bool operator==(const GpuNames&) const = default;
};

/// True if the text names GPUs: `cuda`, or anything that starts with `cuda:`.
bool names_gpus(std::string_view text);
/// Before: the text names GPUs. A usage error says what it takes:
///   cuda         each GPU
///   cuda:0,2     those of these numbers
///   cuda:0/4     four devices: parts of GPU 0 with multiprocessors and memory of their own
///   cuda:0/4:2   two of such four
GpuNames parse_gpu_names(std::string_view text);
std::string to_text(const GpuNames& names);

/// The devices among these GPUs; a usage error names a GPU that is not there. A part has an equal share of its GPU's memory, or
/// `memory` if that is given.
std::vector<Device> gpu_devices(const GpuNames& names, std::span<const Gpu> gpus, std::optional<Bytes> memory = std::nullopt);
std::vector<Device> parse_gpu_devices(std::string_view text, std::span<const Gpu> gpus, std::optional<Bytes> memory = std::nullopt);

/// The GPUs of one of several ranks of a machine, numbered from 0: if all GPUs are named, the ranks take one each, in turn; any
/// other names mean the same for every rank.
GpuNames gpus_of_rank(GpuNames names, std::size_t gpus, std::size_t local_rank);

}  // namespace baton::cluster
