#pragma once

#include <vector>

#include "baton/exercise/program.h"

namespace baton::exercise {

/// The other ranks of a checked program that runs once per rank. The checker is the network between them: it carries each message
/// and counts it.
class Peers {
 public:
  Peers(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Sends values to a rank. Returns at once: messages wait until they are received, in the order in which they were sent.
  void send(int to, const std::vector<float>& values) { say(Writer().add(verb::send).add(to).add(values)); }
  /// Waits for the next message of a rank.
  std::vector<float> receive(int from) {
    say(Writer().add(verb::receive).add(from));
    return Reader(hear()).floats();
  }
  /// Waits until all ranks have called it with equally many values, and returns their sums. Only some exercises have it.
  std::vector<float> all_reduce(const std::vector<float>& values) {
    say(Writer().add(verb::all_reduce).add(values));
    return Reader(hear()).floats();
  }

 private:
  int rank_;
  int size_;
};

}  // namespace baton::exercise
