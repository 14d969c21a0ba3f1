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
  Bytes memory;  // free when it was asked
  int multiprocessors = 0;
  std::string id = {};  // the same in every process that sees it, and of no other GPU of the machine
};

/// Whether the words name GPUs: `cuda` and what begins with `cuda:`.
bool names_gpus(std::string_view text);

/// The devices that `text` names among these GPUs:
///   cuda         each GPU
///   cuda:0,2     those of these numbers
///   cuda:0/4     four devices: parts of GPU 0 with multiprocessors and memory of their own
///   cuda:0/4:2   two of such four
/// A part has an equal share of its GPU's memory, or `memory` where that is given.
std::vector<Device> parse_gpu_devices(std::string_view text, std::span<const Gpu> gpus, std::optional<Bytes> memory = std::nullopt);

/// The words for one of several ranks on a machine, numbered there from 0: of `cuda` alone each has one of the GPUs it sees, in
/// turn; whatever else is written holds for each as it stands.
std::string gpu_words_of_rank(std::string_view text, std::size_t gpus, std::size_t local_rank);

}  // namespace baton::cluster
