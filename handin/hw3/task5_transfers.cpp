// Task 5: how often data moves in one forward, read off the plan, and what that costs.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::printf("devices  moves forward  moves per step  bytes per step  time/step (ms)\n");
  for (const int count : {2, 3, 4, 5}) {
    job::JobSpec spec;
    spec.model = mlp(given.dim, 20);
    spec.strategy = "layers";
    spec.devices = devices(given.kind, count);
    const training::Training run = train(spec);
    const baton::plan::Totals totals = run.totals();
    std::printf("%7d  %13ld  %14ld  %14ld  %14.3f\n", count, static_cast<long>(totals.transfers_forward),
                static_cast<long>(totals.transfers), static_cast<long>(totals.work.sent.count), milliseconds(run));
  }
}
