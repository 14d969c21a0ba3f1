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

/// True if the text names GPUs: `cuda`, or anything that starts with `cuda:`.
bool names_gpus(std::string_view text);

/// The devices that `text` names among these GPUs:
///   cuda         each GPU
///   cuda:0,2     those of these numbers
///   cuda:0/4     four devices: parts of GPU 0 with multiprocessors and memory of their own
///   cuda:0/4:2   two of such four
/// A part has an equal share of its GPU's memory, or `memory` if that is given.
std::vector<Device> parse_gpu_devices(std::string_view text, std::span<const Gpu> gpus, std::optional<Bytes> memory = std::nullopt);

/// The text for one of several ranks of a machine, numbered from 0: with `cuda` alone the ranks take the GPUs in turn, one per
/// rank; any other text means the same for every rank.
std::string gpu_words_of_rank(std::string_view text, std::size_t gpus, std::size_t local_rank);

}  // namespace baton::cluster
