#include "baton/cuda/peers.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <set>
#include <utility>

#include "baton/cuda/status.h"

namespace baton::cuda {
namespace {

bool enable(int from, int to) {
  static std::mutex mutex;
  static std::set<std::pair<int, int>> enabled;
  const std::lock_guard lock(mutex);
  if (from == to || enabled.contains({from, to})) {
    return true;
  }
  int can = 0;
  require(cudaDeviceCanAccessPeer(&can, from, to), "asking which memory it reaches");
  if (can == 0) {
    return false;
  }
  require(cudaSetDevice(from), "selecting it");
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else {
    require(status, "reaching the memory of another GPU");
  }
  enabled.emplace(from, to);
  return true;
}

}  // namespace

bool enable_peers(std::span<const int> ordinals) {
  bool all = true;
  for (const int from : ordinals) {
    for (const int to : ordinals) {
      all = enable(from, to) && all;
    }
  }
  return all;
}

}  // namespace baton::cuda
