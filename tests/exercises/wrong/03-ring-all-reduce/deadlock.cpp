// earns: 0 0 0 0
// Every rank waits before it sends.
#include "exercise.h"

void all_reduce(Peers& peers, std::vector<float>& values) {
  const std::vector<float> got = peers.receive((peers.rank() + 1) % peers.size());
  peers.send((peers.rank() + 1) % peers.size(), values);
}
