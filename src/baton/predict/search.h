#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "baton/job/choice.h"
#include "baton/job/record.h"
#include "baton/trace/analysis.h"
#include "baton/training/job.h"

namespace baton::predict {

/// A way of splitting a job over a cluster, and the costs of a simulated step of it.
struct RankedSplit {
  job::JobSpec spec;
  job::Choice choice = {};
  std::string name;  // as plans are described, "dp 4 × pp 2, 1f1b, 8 micro-batches", and whether it recomputes
  Nanoseconds step;
  Bytes memory;                     // memory of the device that needs most
  trace::DeviceTime time;           // the parts of the step, the mean over devices
  bool from_shorter_steps = false;  // two steps of fewer micro-batches were simulated, the rest is in proportion
};

/// The fields of a job that a search chooses itself and that cannot be given to it.
const std::vector<std::string>& fields_a_search_chooses();

/// Its name, the times of its step and its memory, by the keys of records.
job::Record to_record(const RankedSplit& found);

struct SearchResult {
  std::vector<RankedSplit> ranked;             // the fastest first
  std::vector<std::size_t> frontier;           // indices into `ranked`: no simulated split is both faster and smaller than these
  std::size_t considered = 0;                  // all splits: each is in one of the next five, or simulated and refused or too large
  std::size_t tried = 0;                       // splits that were simulated
  std::size_t pruned = 0;                      // not simulated: cannot be faster than the fastest
  std::size_t left_out = 0;                    // not simulated: others are priced faster
  std::size_t too_long = 0;                    // not simulated: the plan would have more tasks than a search compiles
  std::size_t too_large = 0;                   // splits that need more than the devices' memory
  Bytes least_too_large;                       // lower bound of the memory of the smallest of these
  std::size_t refused = 0;                     // splits that the model or the batch does not allow
  std::map<std::string, std::size_t> reasons;  // the number of those by reason
  std::optional<RankedSplit> one_device;       // without micro-batches, whether it fits or not; nothing if it was not reached
  std::int64_t devices = 1;                    // the number of devices of the cluster
  Bytes device_memory;
  bool complete = true;

  void note_too_large(double bytes);
};

/// Called before each simulation; false: stop with the results so far.
using SearchProgress = std::function<bool(std::size_t done, std::size_t total)>;

/// Prices every split of the job over the devices and over fewer (job/choice.h lists them), and simulates about 50: first the most
/// promising by price of different divisions of the devices (in the first 20 tries), then the best by prices that are corrected
/// with the simulated times. If plans are small, every other split that could be faster than the fastest is simulated too. `shared`
/// is what all have in common: model, batch, cluster, devices, optimizer; a usage error names a field that it sets although the
/// search chooses it. `overrides` may hold a model and costs.
SearchResult search(const job::JobSpec& shared, const cluster::Machine& machine, const SearchProgress& progress = {},
                    const training::JobOverrides& overrides = {});

/// A sentence on whether the fastest split beats one device, and by how much; empty if one device was not reached.
std::string against_one_device(const SearchResult& result);

/// A sentence on whether fewer devices are faster than all of them; empty if there is one device.
std::string against_all_devices(const SearchResult& result);

/// Explains why the second lost: how much of the difference lies in computing, in exposed communication, in waiting and in the
/// rest.
std::string why_not(const RankedSplit& best, const RankedSplit& second);

}  // namespace baton::predict
