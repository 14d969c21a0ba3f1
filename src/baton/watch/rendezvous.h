#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/watch/wire.h"

namespace baton::watch {

struct PeerConnection {
  Connection connection;
  std::string name;  // "rank 2 (pid 4711 on node1)"
};

/// Connects every rank with rank 0: rank 0 opens a port and sends its addresses by `broadcast`, and the others
/// try all addresses at once. By rank: rank 0 has all others, the others only rank 0. A failure names the
/// ranks that did not connect.
std::vector<PeerConnection> rendezvous(int rank, int size, const std::function<std::string(const std::string& words)>& broadcast);

}  // namespace baton::watch
