#pragma once

#include <functional>
#include <string>

#include "baton/cluster/machine.h"
#include "baton/job/json.h"

namespace baton::training {

/// How the losses of a result compare with those of the same training done again here.
struct Recomputed {
  std::int64_t steps = 0;
  std::int64_t differing = 0;  // steps whose losses have other bits
  std::int64_t first = -1;     // the first of them
  double worst = 0;            // the largest relative difference
  double allowed = 0;          // the largest that is allowed; 0: bits have to be the same
  std::string why_allowed;     // why other bits are allowed; empty if they are not
  bool agrees() const { return differing == 0 || (allowed > 0 && worst <= allowed); }
  /// What agrees or differs, and by how much.
  std::string sentence() const;
};

/// Trains again what a result of `train --json` says it is of, with its seed, its steps and its settings. Results of CPUs have to
/// have the same bits; so have those of a GPU if there is one of its kind here, and otherwise they may differ by 1e-4. A usage
/// error says what the result lacks, or why it cannot be done again. `go_on` is told how many steps are done; false: stop.
Recomputed recompute(const job::Json& result, const cluster::Machine& machine,
                     const std::function<bool(std::int64_t done, std::int64_t of)>& go_on = {});

}  // namespace baton::training
