#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/ids.h"
#include "baton/base/units.h"

namespace baton::cluster {

/// What a device does at best, by its data sheet. Where a figure is zero there is no such limit.
struct Speed {
  std::map<std::string, double, std::less<>> rates;  // flop/s of products, by the type of their elements: "f32"
  double memory_bandwidth = 0;                       // bytes a second
  Nanoseconds launch;                                // before each task
  double efficiency = 1;                             // the share of the rate that large products reach
  double half_extent = 0;                            // a product with an extent as small as this reaches half of that

  /// That of f32 where the type has none of its own.
  double rate(DType type) const;
};

/// A GPU, or one of several equal parts of it.
struct GpuPart {
  int ordinal = 0;
  int part = 0;  // of so many:
  int of = 1;
  int multiprocessors = 0;  // as many, or a few fewer where they come in groups
  int unit = 0;             // which of all the ranks' GPUs it is; `ordinal` is its number in its own process
  bool operator==(const GpuPart&) const = default;
};

/// Something that computes and has memory of its own: a set of cores, or a GPU.
struct Device {
  std::string name;
  std::vector<int> cores;  // none of a GPU
  Bytes memory;
  int node = 0;
  int machine = 0;  // whose cores it has: nodes may be parts of one machine
  int rank = 0;     // the process that runs it
  /// Whether what computes also carries the messages, so that its lanes take turns; otherwise they run side by side.
  bool shared_lanes = true;
  Speed speed = {};
  std::optional<GpuPart> gpu = {};
};

/// A way between two devices: a message of n bytes takes latency + n / bandwidth. Where two figures do not fit all sizes,
/// pieces give others for messages from some size on.
struct Link {
  struct Piece {
    Bytes from;
    Nanoseconds latency;
    double bandwidth = 0;
  };

  Nanoseconds latency;
  double bandwidth = 0;            // bytes a second; 0: no limit
  std::vector<Piece> pieces = {};  // in order of size
  /// The share of a core that messages take, at each end, from devices that carry them themselves, while they use the whole
  /// bandwidth; more than 1 where that takes several.
  double core = 0;

  /// The figures for a message of that size: of the last piece that begins below it, or the link's own.
  Piece at(double message) const;
  Nanoseconds time(Bytes message) const;
};

/// How the members of a collective pass their parts along. Of a broadcast or a reduction the root has one part with each other
/// member, whatever the rest do, unless they make a tree.
///   ring           each to the next one
///   tree           in pairs, then pairs of pairs; not pipelined
///   direct         each to every other at once
///   hierarchical   rings within the nodes and between them; a plain ring where members do not fill nodes evenly
enum class Algorithm : std::uint8_t { ring, tree, direct, hierarchical };
std::string_view to_text(Algorithm algorithm);
/// A usage error lists them.
Algorithm algorithm_by_name(std::string_view name);

/// How devices are joined: each has a port to its node, and each node has ports to the network. A port carries its
/// bandwidth in each direction. A bandwidth of zero is without limit.
struct Wiring {
  Link port;              // of each device
  Link network;           // of each of a node's ports; its latency is that from device to device
  int network_ports = 1;  // a node has so many: its k-th device uses the one numbered k modulo this
  double bus = 0;         // bytes a second that all messages between devices of one node share
  Algorithm algorithm = Algorithm::hierarchical;
};

/// An immutable description of devices and the links between them.
class Cluster {
 public:
  /// Without a wiring, devices lie in one memory: what a message costs is what copying costs.
  explicit Cluster(std::vector<Device> devices, std::optional<Link> emulated_link = std::nullopt,
                   std::optional<Wiring> wiring = std::nullopt);

  const std::vector<Device>& devices() const { return devices_; }
  std::size_t size() const { return devices_.size(); }
  const Device& device(DeviceId id) const { return devices_[id.index()]; }
  /// The speed that messages are slowed to on purpose, where the user asked for it.
  const std::optional<Link>& emulated_link() const { return emulated_link_; }
  const std::optional<Wiring>& wiring() const { return wiring_; }
  /// Whether some core belongs to more than one device, so that devices take turns.
  bool oversubscribed() const;
  /// How many ranks have devices on the GPU that most of them share; 0 where there is no GPU.
  std::size_t most_ranks_on_a_gpu() const;

 private:
  std::vector<Device> devices_;
  std::optional<Link> emulated_link_;
  std::optional<Wiring> wiring_;
};

/// `bandwidth=1GB/s,latency=50us`, either of them alone too (then no limit, or no latency); and `core=0.2`.
Link parse_link(std::string_view text);
/// A link's share of a core.
double parse_core(std::string_view text, std::string_view what);

}  // namespace baton::cluster
