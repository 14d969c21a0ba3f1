// Task 2: strong scaling. The global batch stays 64 on 1, 2 and 4 devices under DDP.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::printf("devices  time/step (ms)  speedup  efficiency\n");
  double alone = 0;
  for (const int count : {1, 2, 4}) {
    job::JobSpec spec;
    spec.model = mlp(given.dim, 2);
    spec.strategy = "ddp";
    spec.devices = devices(given.kind, count);
    spec.batch = 64;
    const double time = milliseconds(train(spec));
    alone = count == 1 ? time : alone;
    std::printf("%7d  %14.3f  %7.2f  %8.1f %%\n", count, time, alone / time, 100 * alone / time / count);
  }
}
