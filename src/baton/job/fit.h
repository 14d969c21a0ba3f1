#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "baton/job/choice.h"
#include "baton/job/memory_by_purpose.h"
#include "baton/job/reserved.h"
#include "baton/job/spec.h"

namespace baton::job {

/// The memory of one device, or of several that are alike.
struct DeviceMemory {
  std::string device;
  std::int64_t copies = 1;  // devices of the cluster that it stands for
  Bytes peak;               // what the plan lays out: what `plan` and `simulate` show
  MemoryByPurpose held;     // the bytes of that by cause, at the moment when most is alive
  /// The rest of the peak: memory that cannot be shared because lanes run side by side, and gaps between buffers.
  Bytes unshared() const { return Bytes(peak.count - held.sum()); }
};

/// The memory that a split of a job needs, and whether it fits.
struct Fit {
  JobSpec spec;
  std::string name;  // as plans are described
  std::vector<DeviceMemory> devices;
  Bytes limit;                // memory of each device
  double estimated_time = 0;  // nanoseconds of a step; 0: not estimated
  /// The memory that the program which the specification names would reserve on each device of a pipeline; empty if its
  /// profile does not say.
  std::vector<Reserved> reserved = {};

  const DeviceMemory& fullest() const;
  /// The memory that the fullest device needs: the program's reserved memory if that is known, otherwise the plan's.
  Bytes needed() const;
  bool fits() const { return needed() <= limit; }
};

/// Compiles and verifies the plan of the job on a cluster, folded where devices are alike unless the job says otherwise, and
/// lays out its memory. Nothing is simulated. A usage error says why there is no such plan, or that it does not fit in `room`, the
/// memory of the machine that compiles it.
Fit fit(const JobSpec& spec, std::optional<Bytes> room = {});

/// Splits of the same job with one thing changed that need less memory, those that fit first, and of these the smallest change of
/// what the user asked for: recomputation, sequence, micro-batches, ZeRO, then more stages or parts for fewer replicas.
std::vector<Fit> smaller_splits(const Fit& too_large);

/// The splits of a job over all its devices, and whether they fit.
struct FitList {
  std::vector<Fit> smallest;   // splits that were laid out and fit, the smallest memory first
  std::vector<Fit> fastest;    // the same splits, the fastest by formula first
  std::size_t considered = 0;  // the number of all splits over all devices
  std::size_t impossible = 0;  // splits whose parameters and states alone need more than a device has
  Bytes least_impossible;      // lower bound in bytes of the fullest device of any of those
  std::size_t likely = 0;      // splits that fit by formula
  std::size_t laid_out = 0;    // splits that were compiled
  std::size_t refused = 0;     // splits that the model or the batch does not allow
  std::optional<Fit> nearest;  // if none fits: the smallest that was laid out
  Bytes limit;
};
/// The job says nothing about the split. `go_on` is called before each plan; false: stop with the results so far.
FitList fitting_splits(const JobSpec& spec, const std::function<bool(std::size_t done, std::size_t total)>& go_on = {});

}  // namespace baton::job
