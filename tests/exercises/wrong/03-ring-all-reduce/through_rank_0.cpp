// earns: 4 2 0 0
// Rank 0 collects and spreads: right, and all of it crosses one port.
#include "exercise.h"

void all_reduce(Peers& peers, std::vector<float>& values) {
  if (peers.rank() > 0) {
    peers.send(0, values);
    values = peers.receive(0);
    return;
  }
  for (int r = 1; r < peers.size(); ++r) {
    const std::vector<float> got = peers.receive(r);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += got[i];
    }
  }
  for (int r = 1; r < peers.size(); ++r) {
    peers.send(r, values);
  }
}
