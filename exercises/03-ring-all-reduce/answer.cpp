#include "exercise.h"

void all_reduce(Peers& peers, std::vector<float>& values) {
  // To do: each rank keeps its own values. A ring takes two rounds of size - 1 steps; in each step a rank sends one of `size` parts
  // to the next rank, peers.send((peers.rank() + 1) % peers.size(), part), and receives one from the rank before it.
}
