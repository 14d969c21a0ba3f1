// Task 5 A: every device sleeps before its backward, and speedup falls as (c + d) / (c / n + d) says.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::printf("delay (ms)  devices  time/step (ms)  speedup\n");
  for (const int delay : {0, 5, 10, 20, 40}) {
    double alone = 0;
    for (const int count : {1, 2, 4}) {
      job::JobSpec spec;
      spec.model = mlp(given.dim, 2);
      spec.strategy = "ddp";
      spec.devices = devices(given.kind, count);
      if (delay > 0) {
        spec.delays = {{.device = -1, .duration = baton::Nanoseconds(delay * 1'000'000)}};  // -1: on all devices
      }
      const double time = milliseconds(train(spec));
      alone = count == 1 ? time : alone;
      std::printf("%10d  %7d  %14.3f  %7.2f\n", delay, count, time, alone / time);
    }
  }
}
