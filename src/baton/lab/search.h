#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "baton/lab/job.h"
#include "baton/trace/analysis.h"

namespace baton::lab {

/// A way of splitting a job over a cluster, and what a simulated step of it costs.
struct Found {
  JobWords words;
  std::string name;  // as plans are described, "dp 4 × pp 2, 1f1b, 8 micro-batches", and whether it recomputes
  Nanoseconds step;
  Bytes memory;            // of the device that needs most
  trace::DeviceTime time;  // where the step went, the mean over devices
};

struct SearchResult {
  std::vector<Found> ranked;          // the fastest first
  std::vector<std::size_t> frontier;  // into `ranked`: none is both faster and smaller
  std::size_t tried = 0;
  std::size_t pruned = 0;           // not simulated: another is faster and smaller than this could be
  std::size_t too_large = 0;        // for the devices' memory,
  Bytes least_too_large;            // of which the smallest needs no less than this
  std::size_t refused = 0;          // that the model or the batch does not allow
  std::optional<Found> one_device;  // without micro-batches, whether it fits or not; nothing if it was not reached
  Bytes device_memory;
  bool complete = true;
};

/// Called before each try; false: stop with what there is.
using SearchProgress = std::function<bool(std::size_t done, std::size_t total)>;

/// Tries the products of replicas, stages and divided tensors over all devices and over fewer, with every stage of ZeRO, every
/// schedule, with 1, 2 and 4 times as many micro-batches as stages, with and without recomputation. `shared` is what all have in
/// common: model, batch, cluster, devices, optimizer; a usage error names what is asked for there although the search chooses it.
/// `own` may hold a model and costs.
SearchResult search(const JobWords& shared, const cluster::Machine& machine, const SearchProgress& progress = {},
                    const Own& own = {});

/// Whether the fastest split beats one device, and by how much; empty if one device was not reached.
std::string against_one_device(const SearchResult& result);

/// Why the second lost: what part of the difference lies in computing, in exposed communication, in waiting and in the rest.
std::string why_not(const Found& best, const Found& second);

}  // namespace baton::lab
