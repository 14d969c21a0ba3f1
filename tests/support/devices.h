#pragma once

#include <fmt/format.h>

#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::test {

/// `cpu:0`, `cpu:1`, ...: a core each, which they take in turns where there are fewer.
inline std::vector<cluster::Device> cpus(std::size_t count, std::size_t cores = 1, Bytes memory = Bytes(1 << 30)) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({.name = fmt::format("cpu:{}", d), .cores = {static_cast<int>(d % cores)}, .memory = memory, .product = "cpu"});
  }
  return list;
}

}  // namespace baton::test
