// Task 4: DataParallel against DDP: time and its spread, and what each device holds, sends and receives.
#include <baton/plan/plan.h>

#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  for (const int count : {2, 4}) {
    for (const char* strategy : {"dp", "ddp"}) {
      job::JobSpec spec;
      spec.model = mlp(given.dim, 2);
      spec.strategy = strategy;
      spec.devices = devices(given.kind, count);
      const training::Training run = train(spec);
      const baton::trace::Spread spread = baton::trace::spread(run.timed());
      std::printf("%s on %d: %.3f ms per step, standard deviation %.3f ms\n", strategy, count, milliseconds(run),
                  static_cast<double>(spread.std.count) / 1e6);
      const std::vector<baton::plan::Totals> totals = baton::plan::totals_by_device(run.plan());
      for (std::size_t d = 0; d < totals.size(); ++d) {
        std::printf("  device %zu: busy %4.1f %%, memory %.2f MiB, through it %.2f MiB\n", d,
                    100 * baton::trace::share_of(run.device_times()[d].busy, run.traced()),
                    static_cast<double>(run.peak()[d].count) / 1048576,
                    static_cast<double>(totals[d].work.sent.count + totals[d].work.received.count) / 1048576);
      }
    }
  }
}
