// earns: 2 0 0 0
// The layout that takes the least memory of those that are tried, however long it takes.
#include <limits>

#include "exercise.h"

Layout find_layout(const Job& job, const TryOut& try_out) {
  Layout best;
  double least = std::numeric_limits<double>::infinity();
  for (int pp = 1; pp <= job.devices; pp *= 2) {
    for (const int micro_batches : {2, 4, 8}) {
      const Layout layout{job.devices / pp, pp, 1, pp < job.devices ? 3 : 0, micro_batches, true};
      const Tried tried = try_out(layout);
      if (tried.refused.empty() && tried.memory < least) {
        least = tried.memory;
        best = layout;
      }
    }
  }
  return best;
}
