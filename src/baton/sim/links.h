#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::sim {

/// The links between two devices, and the kind of link whose latency and bandwidth apply.
struct Path {
  const cluster::Link* kind = nullptr;  // nullptr: no cost
  std::array<std::uint32_t, 5> links{};
  std::size_t count = 0;

  std::span<const std::uint32_t> through() const { return std::span(links).first(count); }
};

/// The ports of a cluster as numbered links: one per direction of a port, and one per bus; within a node that has a mesh one per
/// direction of a pair instead of the ports. Links without a limit are on no path. A cluster without wiring has no links.
class Links {
 public:
  explicit Links(const cluster::Cluster& cluster);

  std::size_t size() const { return bandwidth_.size(); }
  double bandwidth(std::uint32_t link) const { return bandwidth_[link]; }  // bytes per second
  /// The path refers to data of this object. Devices of a mesh that no link joins are two links apart.
  Path path(DeviceId from, DeviceId to) const;
  /// Rings through all of these devices of one node, of which each has links of its own: as many as the mesh has. Empty if
  /// there is no mesh.
  std::vector<std::vector<DeviceId>> rings(const std::vector<DeviceId>& members) const;
  bool forwards(DeviceId from, DeviceId to) const;

 private:
  struct DevicePosition {
    std::uint32_t node = 0;
    std::uint32_t in_node = 0;
    std::uint32_t network_port = 0;  // numbered through the cluster
  };
  cluster::Wiring wiring_;
  std::vector<DevicePosition> places_;  // by device
  std::vector<double> bandwidth_;       // device ports out and in, network ports out and in, buses
  std::uint32_t first_network_port_ = 0;
  std::uint32_t first_bus_ = 0;
  std::uint32_t first_pair_ = 0;
  std::uint32_t side_ = 0;              // devices of a node of the mesh
  std::vector<int> links_of_pair_;      // by two places in a node
  std::vector<std::uint32_t> between_;  // by two places in a node that no link joins: which passes messages on

  void open_mesh(std::size_t nodes);
  int joined(std::uint32_t a, std::uint32_t b) const { return links_of_pair_[a * side_ + b]; }
  std::uint32_t pair(std::uint32_t node, std::uint32_t a, std::uint32_t b) const {
    return first_pair_ + (node * side_ + a) * side_ + b;
  }
};

}  // namespace baton::sim
