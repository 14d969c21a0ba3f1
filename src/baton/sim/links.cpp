#include "baton/sim/links.h"

#include <algorithm>

namespace baton::sim {

Links::Links(const cluster::Cluster& cluster) {
  if (!cluster.wiring()) {
    return;
  }
  wiring_ = *cluster.wiring();
  const auto ports = static_cast<std::uint32_t>(wiring_.network_ports);
  std::vector<std::uint32_t> in_node;  // how many devices of each node there are so far
  for (const cluster::Device& device : cluster.devices()) {
    const auto node = static_cast<std::uint32_t>(device.node);
    in_node.resize(std::max<std::size_t>(in_node.size(), node + 1), 0);
    places_.push_back({node, node * ports + in_node[node]++ % ports});
  }
  bandwidth_.assign(2 * places_.size(), wiring_.port.bandwidth);
  first_network_port_ = static_cast<std::uint32_t>(bandwidth_.size());
  bandwidth_.resize(bandwidth_.size() + std::size_t{2} * ports * in_node.size(), wiring_.network.bandwidth);
  first_bus_ = static_cast<std::uint32_t>(bandwidth_.size());
  bandwidth_.resize(bandwidth_.size() + in_node.size(), wiring_.bus);
}

Path Links::path(DeviceId from, DeviceId to) const {
  Path path;
  if (places_.empty() || from == to) {
    return path;
  }
  const auto add = [&](std::uint32_t link) {
    if (bandwidth_[link] > 0) {
      path.links[path.count++] = link;
    }
  };
  const Place& a = places_[from.index()];
  const Place& b = places_[to.index()];
  add(2 * from.value);
  if (a.node == b.node) {
    add(first_bus_ + a.node);
    path.kind = &wiring_.port;
  } else {
    add(first_network_port_ + 2 * a.network_port);
    add(first_network_port_ + 2 * b.network_port + 1);
    path.kind = &wiring_.network;
  }
  add(2 * to.value + 1);
  return path;
}

}  // namespace baton::sim
