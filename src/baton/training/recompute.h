#pragma once

#include <functional>
#include <string>

#include "baton/cluster/machine.h"
#include "baton/job/json.h"

namespace baton::training {

/// A comparison of the losses of a result with those of the same training, repeated here.
struct Recomputed {
  std::int64_t steps = 0;
  std::int64_t differing = 0;  // steps whose losses have other bits
  std::int64_t first = -1;     // the first of them
  double worst = 0;            // the largest relative difference
  double allowed = 0;          // the largest that is allowed; 0: bits have to be the same
  std::string why_allowed;     // why other bits are allowed; empty if they are not
  bool agrees() const { return differing == 0 || (allowed > 0 && worst <= allowed); }
  /// A sentence on what agrees or differs, and by how much.
  std::string sentence() const;
};

/// Repeats the training of a result of `train --json`, with its seed, its steps and its settings. Results of CPUs must have the
/// same bits; so must those of a GPU if this machine has one of its kind, and otherwise they may differ by 1e-4. bf16 on CPUs may
/// differ by 2^-8 if exactly one of the two is computed by emulation and the other by amx or portable, which have the same bits; a
/// bf16 result that does not say is one of emulation. Two causes: sums are added and rounded in another order; and with plain SGD
/// the tiles do not round a gradient to bf16 before the update (`Target::narrow_gradient_with_sgd`). The difference grows with the
/// number of steps: 2^-8 was tested on short runs. A usage error says what the result lacks, or why it cannot be repeated. `go_on`
/// gets the number of steps done; false: stop.
Recomputed recompute(const job::Json& result, const cluster::Machine& machine,
                     const std::function<bool(std::int64_t done, std::int64_t of)>& go_on = {});

}  // namespace baton::training
