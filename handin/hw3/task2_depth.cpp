// Task 2: DEPTH 6, 12 and 24 on two devices.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::printf("DEPTH  time/step (ms)  busy 0  busy 1\n");
  for (const int depth : {6, 12, 24}) {
    job::JobSpec spec;
    spec.model = mlp(given.dim, depth);
    spec.strategy = "layers";
    spec.devices = devices(given.kind, 2);
    const training::Training run = train(spec);
    const auto busy = [&](std::size_t d) { return 100 * baton::trace::share_of(run.device_times()[d].busy, run.traced()); };
    std::printf("%5d  %14.3f  %4.1f %%  %4.1f %%\n", depth, milliseconds(run), busy(0), busy(1));
  }
}
