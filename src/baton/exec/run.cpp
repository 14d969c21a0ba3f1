#include "baton/exec/run.h"

#include <algorithm>
#include <utility>

namespace baton::exec {

void add_tally(std::vector<RoundingTally>& tallies, const RoundingTally& tally) {
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
  const auto room = static_cast<std::size_t>(std::min<std::int64_t>(steps, 1'000'000));
  RunResult result;
  result.losses.reserve(room);
  result.step_times.reserve(room);
  result.data_waits.reserve(room);
  return result;
}

void add_step(RunResult& result, double loss, Nanoseconds time, Nanoseconds data_wait) {
  result.losses.push_back(loss);
  result.step_times.push_back(time);
  result.data_waits.push_back(data_wait);
}

void catch_up(RunResult& shown, const RunResult& result) {
  for (std::size_t step = shown.losses.size(); step < result.losses.size(); ++step) {
    add_step(shown, result.losses[step], result.step_times[step], result.data_waits[step]);
  }
}

Rounding total_rounding(std::span<const RoundingTally> tallies, std::optional<plan::Role> role) {
  Rounding total;
  for (const RoundingTally& tally : tallies) {
    if (!role || tally.role == *role) {
      total += tally.rounding;
    }
  }
  return total;
}

}  // namespace baton::exec
