// earns: 4 0 1 0
// Whole vectors go around: n / 2 times as many values as needed, added in another order on each rank.
#include "exercise.h"

void all_reduce(Peers& peers, std::vector<float>& values) {
  std::vector<float> passing = values;
  for (int step = 0; step + 1 < peers.size(); ++step) {
    peers.send((peers.rank() + 1) % peers.size(), passing);
    passing = peers.receive((peers.rank() + peers.size() - 1) % peers.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += passing[i];
    }
  }
}
