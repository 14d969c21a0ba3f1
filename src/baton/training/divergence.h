#pragma once

#include <functional>
#include <optional>
#include <string>

#include "baton/checkpoint/checkpoint.h"
#include "baton/training/job.h"

namespace baton::training {

/// The step and the task of a training that first gave values that are not finite.
struct Divergence {
  std::int64_t step = 0;
  std::string where;  // "linear in the backward of block 3"
};

/// Trains the job again on one device, from a checkpoint or, if there is none, from the start, and looks at every value that a
/// step leaves, up to and including step `last`. nullopt if all of them are finite, or `go_on` returned false after
/// some step. One device sums in another order than several do, so values may overflow a step earlier or later.
std::optional<Divergence> find_divergence(JobSpec spec, const cluster::Machine& machine, const checkpoint::TensorReader* from,
                                          std::int64_t last, const std::function<bool()>& go_on);

}  // namespace baton::training
