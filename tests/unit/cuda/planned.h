#pragma once

#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/model/zoo.h"
#include "baton/plan/plan.h"
#include "baton/strategy/strategy.h"

namespace baton::cuda::test {

/// What each of the ranks of one machine with two GPUs has: whole GPUs that differ by rank while there are enough, or the first
/// `used` of `of` parts of GPU 0.
struct Gpus {
  int ranks = 2;
  bool same = false;  // whole GPU 0 for each
  int of = 1;
  int used = 1;
};

inline cluster::Cluster cluster_of(const Gpus& gpus) {
  std::vector<cluster::Device> devices;
  for (int rank = 0; rank < gpus.ranks; ++rank) {
    const int unit = gpus.same || gpus.of > 1 ? 0 : rank % 2;
    for (int part = 0; part < gpus.used; ++part) {
      devices.push_back({.name = "cuda:" + std::to_string(devices.size()),
                         .cores = {},
                         .memory = Bytes(8000),
                         .rank = rank,
                         .shared_lanes = false,
                         .gpu = cluster::GpuPart{unit, part, gpus.of, 132 / gpus.of, unit},
                         .product = "cuda"});
    }
  }
  return cluster::Cluster(std::move(devices));
}

/// A plan of collectives and transfers over devices of several ranks.
struct Planned {
  Planned(const std::string& strategy, const Gpus& gpus)
      : cluster(cluster_of(gpus)),
        plan(strategy::compile({.model = model::mlp({6, 7, 5, 6, 5, 7, 6}),
                                .cluster = cluster,
                                .strategy = strategy,
                                .step = {.global_batch = 8, .optimizer = op::Sgd{.rate = 0.1}},
                                .layout = {},
                                .target = {.all_reduce_with_sgd = true},
                                .delays = {}})) {}

  cluster::Cluster cluster;
  plan::Plan plan;
};

}  // namespace baton::cuda::test
