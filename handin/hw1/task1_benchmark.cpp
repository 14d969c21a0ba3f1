// Task 1: a benchmark that repeats. DDP on two devices, 30 steps of which the first 5 are warm-up; twice with seed 0, once with 1.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  job::JobSpec spec;
  spec.model = mlp(given.dim, 2);
  spec.strategy = "ddp";
  spec.devices = devices(given.kind, 2);
  const training::Training first = train(spec);
  for (std::size_t step = 0; step < first.losses().size(); ++step) {
    std::printf("step %2zu  %9.3f ms  loss %.8f%s\n", step, static_cast<double>(first.step_times()[step].count) / 1e6,
                first.losses()[step], step < 5 ? "  warm-up" : "");
  }
  std::printf("median of the timed steps: %.3f ms\n", milliseconds(first));
  const training::Training again = train(spec);
  spec.seed = 1;
  const training::Training other = train(spec);
  std::printf("the same seed again: losses %s\n", again.losses() == first.losses() ? "equal to the bit" : "differ");
  std::printf("another seed: losses %s\n", other.losses() == first.losses() ? "equal to the bit" : "differ");
}
