// Task 5 B: four devices, and a global batch of 32 to 256; and one device for the efficiency.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::printf("batch  time/step (ms)  samples/s  speedup over one device  efficiency\n");
  for (const int batch : {32, 64, 128, 256}) {
    const auto time = [&](int count) {
      job::JobSpec spec;
      spec.model = mlp(given.dim, 2);
      spec.strategy = "ddp";
      spec.devices = devices(given.kind, count);
      spec.batch = batch;
      return milliseconds(train(spec));
    };
    const double one = time(1);
    const double four = time(4);
    std::printf("%5d  %14.3f  %9.0f  %23.2f  %8.1f %%\n", batch, four, 1000 * batch / four, one / four, 25 * one / four);
  }
}
