#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/exec/watch/wire.h"

namespace baton::exec::wire {

struct Acquaintance {
  Connection connection;
  std::string name;  // "rank 2 (pid 4711 on node1)"
};

/// Connects every rank with rank 0: that opens a port and says through `broadcast` where it is, and the
/// others try all its addresses at once. By rank: rank 0 has all others, the others rank 0 alone. A failure
/// says who did not come.
std::vector<Acquaintance> rendezvous(int rank, int size, const std::function<std::string(const std::string& words)>& broadcast);

}  // namespace baton::exec::wire
