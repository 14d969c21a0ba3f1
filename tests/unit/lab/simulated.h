#pragma once

#include "baton/lab/job.h"

namespace baton::lab::test {

/// A small job on this many devices of a cluster; on this machine where none is named.
inline JobWords words_on(const std::string& cluster, const std::string& strategy, const std::string& devices) {
  JobWords words;
  words.model = "mlp:dim=64,depth=4";
  words.strategy = strategy;
  words.devices = devices;
  words.cluster = cluster;
  return words;
}

}  // namespace baton::lab::test
