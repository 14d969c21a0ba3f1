#pragma once

#include <string>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::plan::test {

/// A valid plan and where it came from.
struct Sample {
  std::string name;
  Plan plan;
};

/// Plans of every strategy over one to five devices, of several models, optimizers, losses, types and precisions, with
/// and without what a target fuses, with delays, and with buckets so small that `ddp` has many.
const std::vector<Sample>& sample_plans();

}  // namespace baton::plan::test
