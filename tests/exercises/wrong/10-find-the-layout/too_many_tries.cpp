// earns: 0 0 0 0
// Tries all layouts, as if it could, and takes a refused one for one that takes no time.
#include "exercise.h"

Layout find_layout(const Job& job, const TryOut& try_out) {
  Layout best{.dp = job.devices};
  double least = try_out(best).seconds;
  for (int pp = 1; pp <= job.devices; pp *= 2) {
    for (int tp = 1; pp * tp <= job.devices; tp *= 2) {
      for (int zero = 0; zero < 4; ++zero) {
        for (int micro_batches = 1; micro_batches <= 8; micro_batches *= 2) {
          const Layout layout{job.devices / pp / tp, pp, tp, zero, micro_batches, true};
          const Tried tried = try_out(layout);
          if (tried.memory <= job.memory && tried.seconds < least) {
            least = tried.seconds;
            best = layout;
          }
        }
      }
    }
  }
  return best;
}
