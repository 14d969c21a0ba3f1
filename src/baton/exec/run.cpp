#include "baton/exec/run.h"

#include <algorithm>
#include <utility>

namespace baton::exec {

void add(std::vector<RoundingTally>& tallies, const RoundingTally& tally) {
  const auto found = std::find_if(tallies.begin(), tallies.end(), [&](const RoundingTally& other) {
    return other.phase == tally.phase && other.block == tally.block && other.role == tally.role;
  });
  if (found == tallies.end()) {
    tallies.push_back(tally);
  } else {
    found->rounding += tally.rounding;
  }
}

RunResult open_result(std::int64_t steps) {
  RunResult result;
  result.losses.assign(static_cast<std::size_t>(steps), 0);
  result.step_times.assign(static_cast<std::size_t>(steps), Nanoseconds(0));
  result.data_waits.assign(static_cast<std::size_t>(steps), Nanoseconds(0));
  return result;
}

void close_result(RunResult& result, std::int64_t done, std::size_t traced) {
  result.losses.resize(static_cast<std::size_t>(done));
  result.step_times.resize(static_cast<std::size_t>(done));
  result.data_waits.resize(static_cast<std::size_t>(done));
  result.trace.steps.resize(std::min(result.trace.steps.size(), traced));
}

Rounding sum(std::span<const RoundingTally> tallies, std::optional<plan::Role> role) {
  Rounding total;
  for (const RoundingTally& tally : tallies) {
    if (!role || tally.role == *role) {
      total += tally.rounding;
    }
  }
  return total;
}

}  // namespace baton::exec
