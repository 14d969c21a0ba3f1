#pragma once

#include "baton/training/job.h"

namespace baton::training::test {

/// A small job on this many devices of a cluster; on this machine if no cluster is named, by the default strategy if none is.
inline JobSpec spec_on(const std::string& cluster, const std::string& strategy, const std::string& devices) {
  JobSpec spec;
  spec.model = "mlp:dim=64,depth=4";
  if (!strategy.empty()) {
    spec.strategy = strategy;
  }
  spec.devices = devices;
  spec.cluster = cluster;
  return spec;
}

}  // namespace baton::training::test
