// Task 4: DEPTH 20 on 2 and on 5 devices: step time, and what each device holds and does.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  for (const int count : {2, 5}) {
    job::JobSpec spec;
    spec.model = mlp(given.dim, 20);
    spec.strategy = "layers";
    spec.devices = devices(given.kind, count);
    const training::Training run = train(spec);
    std::printf("%d devices: %.3f ms per step\n", count, milliseconds(run));
    for (std::size_t d = 0; d < run.peak().size(); ++d) {
      std::printf("  device %zu: %.2f MiB, busy %4.1f %%\n", d, static_cast<double>(run.peak()[d].count) / 1048576,
                  100 * baton::trace::share_of(run.device_times()[d].busy, run.traced()));
    }
  }
}
