#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::cluster {

/// The content of a cluster file: nodes of equal devices. With a network there are as many nodes as the user asks for.
///
///   summary = "what it is"
///   [device]          name, count (in a node), lanes = "separate" or "shared", memory, memory_bandwidth, launch,
///                     efficiency, half_extent, memory_efficiency, multiprocessors; kind = "core", "gpu" or "other", by which
///                     sentences call it: without it, cores have shared lanes, and GPUs separate ones
///   [device.rates]    f32 = "19.5TFLOP/s", and the same for other types; a step that computes in one that is missing is refused
///   [port]            bandwidth, latency: of each device, each direction; core = 0.2: the share of a core that messages take of
///                     each device whose lanes are shared, while they use the whole bandwidth; so for the network
///   [[port.piece]]    from, bandwidth, latency: other figures for messages from that size on; so for the network
///   [mesh]            links = ["0-1", "0-3 x2"] between devices of a node, instead of a switch that joins all;
///                     bandwidth of a link, efficiency, and forwarded as in Mesh; latency is the port's
///   [bus]             bandwidth: shared by all messages within a node
///   [network]         ports (of a node), bandwidth, latency
///                     efficiency (of the port and of the network): the share of the bandwidth that messages reach
///   [collectives]     algorithm = "ring", "tree", "direct" or "hierarchical"; start, own_pass, half_message, switch_sums,
///                     switch_from, quick_start, quick_latency, quick_share, quick_until, tree_level, tree_member and tree_share as
///                     in Wiring
/// A missing bandwidth has no limit. A file with only a network joins the nodes of another file.
struct Blueprint {
  std::string name;
  std::string summary;
  Device device;
  bool memory_known = true;  // false: its file does not say how much memory a device has
  std::int64_t in_node = 0;  // 0: only a network
  bool networked = false;
  bool wired = false;
  Wiring wiring;

  /// `devices` of its devices, filling one node after the other. A usage error if there are fewer.
  Cluster take(std::int64_t count) const;
  /// These nodes, joined by the network of another file.
  Blueprint joined_by(const Blueprint& network) const;
};

/// A usage error names the mistake in the text.
Blueprint parse_blueprint(std::string_view toml, std::string name);
Blueprint read(const std::filesystem::path& file);

/// The built-in clusters, by name.
const std::vector<Blueprint>& catalogue();

/// NAME, NAME+NETWORK, or either of them as a file (which has a slash or ends in .toml). A usage error lists the names.
Blueprint blueprint_by_name(std::string_view text);

}  // namespace baton::cluster
