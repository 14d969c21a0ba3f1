// Task 5 C: device 0 sleeps 20 ms in every step, and all others wait for it.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  for (const int count : {2, 4}) {
    for (const int delay : {0, 20}) {
      job::JobSpec spec;
      spec.model = mlp(given.dim, 2);
      spec.strategy = "ddp";
      spec.devices = devices(given.kind, count);
      if (delay > 0) {
        spec.delays = {{.device = 0, .duration = baton::Nanoseconds(delay * 1'000'000)}};
      }
      const training::Training run = train(spec);
      std::printf("%d devices, device 0 delayed by %d ms: %.3f ms per step; waiting", count, delay, milliseconds(run));
      for (const baton::trace::DeviceTime& time : run.device_times()) {
        std::printf(" %.3f", static_cast<double>(time.waiting.count) / 1e6 / static_cast<double>(run.traced_steps()));
      }
      std::printf(" ms\n");
    }
  }
}
