#include "baton/exec/run.h"

#include <algorithm>

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
