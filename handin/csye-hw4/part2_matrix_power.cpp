// Part 2: A^10 + B^10 on one device and on two. PROGRAM [cpu|cuda] [SIZE]; the sheet's size is 10000.
#include <baton/measure/matrix_power.h>

#include "measure.h"

constexpr long size_of_the_tables = 10000;

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  const long size = argc > 2 ? std::atol(argv[2]) : size_of_the_tables;
  double alone = 0;
  for (const int count : {1, 2}) {
    job::JobSpec spec;
    spec.devices = devices(given.kind, count);
    training::Training run(spec, baton::cluster::probe(), {}, nullptr, [&](const training::Job& job) {
      return baton::measure::matrix_power_plan(size, 10, job.cluster(), job.request().target, job.request().step.precision);
    });
    run.run(2, 1);
    const double time = milliseconds(run);
    alone = count == 1 ? time : alone;
    std::printf("A^10 + B^10, %ld x %ld, on %d device%s: %.3f ms, speedup %.2f\n", size, size, count, count == 1 ? "" : "s", time,
                alone / time);
  }
}
