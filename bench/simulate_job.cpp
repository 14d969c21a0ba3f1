#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "baton/cluster/machine.h"
#include "baton/training/training.h"

/// Simulates one job this many times, as `baton simulate` does it, and prints the shortest time in seconds: what bench/python.py
/// compares with.
int main(int argc, char** argv) {
  using namespace baton;
  if (argc != 6) {
    std::fprintf(stderr, "usage: simulate_job MODEL STRATEGY DEVICES BATCH COUNT\n");
    return 2;
  }
  job::JobSpec spec;
  spec.model = argv[1];
  spec.strategy = argv[2];
  spec.devices = argv[3];
  spec.batch = std::atoll(argv[4]);
  spec.cluster = "dgx-a100";
  const cluster::Machine machine = cluster::probe();
  std::vector<double> times;
  for (int i = 0; i < std::max(1, std::atoi(argv[5])); ++i) {
    const auto start = std::chrono::steady_clock::now();
    training::Training run(spec, machine);
    run.run(1, 0);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%.9f\n", *std::min_element(times.begin(), times.end()));
}
