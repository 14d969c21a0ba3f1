// Shared by the programs: trains a job and takes the median of its timed steps.
#pragma once

#include <baton/cluster/machine.h>
#include <baton/training/training.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace job = baton::job;
namespace training = baton::training;

constexpr const char* dim_of_the_tables = "1024";

// PROGRAM [cpu|cuda] [DIM]: the kind of device and the width of a block.
struct Arguments {
  std::string kind = "cpu";
  std::string dim = dim_of_the_tables;
};
inline Arguments arguments(int argc, char** argv) {
  Arguments given;
  given.kind = argc > 1 ? argv[1] : given.kind;
  given.dim = argc > 2 ? argv[2] : given.dim;
  return given;
}

// The value of --devices for this many devices of a kind: cpu:4, or cuda:0,1,2,3.
inline std::string devices(const std::string& kind, int count) {
  if (kind == "cpu") {
    return "cpu:" + std::to_string(count);
  }
  std::string list = kind + ":0";
  for (int i = 1; i < count; ++i) {
    list += "," + std::to_string(i);
  }
  return list;
}

inline std::string mlp(const std::string& dim, int depth) { return "mlp:dim=" + dim + ",depth=" + std::to_string(depth); }

// Compiles the plan, checks it and trains: the clock runs from before the forward to after the update, the first 5 steps are
// dropped. The seed is 0 unless the words say otherwise.
inline training::Training train(const job::JobSpec& spec, int steps = 30, int warmup = 5) {
  training::Training run(spec, baton::cluster::probe());
  run.run(steps, warmup);
  return run;
}

inline double milliseconds(const training::Training& run) {
  return static_cast<double>(baton::trace::spread(run.timed()).median.count) / 1e6;
}
