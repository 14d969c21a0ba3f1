#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::cluster {

/// What a cluster's file describes: nodes of equal devices. With a network there are as many nodes as are asked for.
///
///   summary = "what it is"
///   [device]          name, count (in a node), lanes = "apart" or "shared", memory, memory_bandwidth, launch,
///                     efficiency, half_extent
///   [device.rates]    f32 = "19.5Tflop/s", and so for other types
///   [port]            bandwidth, latency: of each device, each direction; core = 0.2: the share of a core that messages take of
///                     each device whose lanes are shared, while they use the whole bandwidth; so for the network
///   [[port.piece]]    from, bandwidth, latency: other figures for messages from that size on; so for the network
///   [bus]             bandwidth: shared by all messages within a node
///   [network]         ports (of a node), bandwidth, latency
///   [collectives]     algorithm = "ring", "tree", "direct" or "hierarchical"
/// What is left out is without limit. A file with nothing but a network joins the nodes of another.
struct Blueprint {
  std::string name;
  std::string summary;
  Device device;
  std::int64_t in_node = 0;  // none: a network alone
  bool networked = false;
  bool wired = false;
  Wiring wiring;

  /// So many devices of it, filling one node after the other. A usage error says how many there are.
  Cluster take(std::int64_t count) const;
  /// These nodes, joined by another's network.
  Blueprint joined_by(const Blueprint& network) const;
};

/// A usage error names what the text has wrong.
Blueprint parse_blueprint(std::string_view toml, std::string name);
Blueprint read(const std::filesystem::path& file);

/// Those that Baton brings along, by name.
const std::vector<Blueprint>& catalogue();

/// NAME, NAME+NETWORK, or either of them as a file (which has a slash or ends in .toml). A usage error lists the names.
Blueprint blueprint_by_name(std::string_view text);

}  // namespace baton::cluster
