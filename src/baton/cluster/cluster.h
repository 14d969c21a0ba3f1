#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/ids.h"
#include "baton/base/units.h"

namespace baton::cluster {

/// The type that products compute in, as data sheets give their rates: that of their elements; tf32, to which the elements of f32
/// may be rounded; or f8, to which those of 16 bits may be.
enum class RateType : std::uint8_t { f64, f32, tf32, bf16, f16, f8 };
inline constexpr std::array<RateType, 6> all_rate_types{RateType::f64,  RateType::f32, RateType::tf32,
                                                        RateType::bf16, RateType::f16, RateType::f8};
/// `f64`, `f32`, `tf32`, `bf16`, `f16`, `f8`.
std::string_view to_text(RateType type);
/// nullopt for integers.
std::optional<RateType> rate_type(DType type);

/// The flop/s of products by the type they compute in; nothing for a type that the data sheet does not have.
class Rates {
 public:
  Rates() = default;
  Rates(std::initializer_list<std::pair<RateType, double>> list) {
    for (const auto& [type, rate] : list) {
      (*this)[type] = rate;
    }
  }

  std::optional<double>& operator[](RateType type) { return list_[static_cast<std::size_t>(type)]; }
  const std::optional<double>& operator[](RateType type) const { return list_[static_cast<std::size_t>(type)]; }
  bool empty() const {
    return std::none_of(list_.begin(), list_.end(), [](const std::optional<double>& rate) { return rate.has_value(); });
  }

 private:
  std::array<std::optional<double>, all_rate_types.size()> list_;
};

/// The peak figures of a device, from its data sheet. Zero means no limit.
struct Speed {
  Rates rates;
  double memory_bandwidth = 0;   // bytes per second
  Nanoseconds launch;            // before each task
  double efficiency = 1;         // the share of the rate that large products reach
  double half_extent = 0;        // a product with an extent as small as this reaches half of that
  double memory_efficiency = 1;  // the share of the memory bandwidth that kernels reach
  int multiprocessors = 0;       // to which the tiles of a product are dealt out; 0: products are priced by `half_extent` alone

  /// The rate of a type; that of f32 if the file gives none for the type.
  double rate(DType type) const;
};

/// A GPU, or one of several equal parts of it.
struct GpuPart {
  int ordinal = 0;
  int part = 0;  // part index
  int of = 1;
  int multiprocessors = 0;  // per part, rounded down to the granularity of partitions
  int unit = 0;             // number among the GPUs of all ranks; `ordinal` is its number in its own process
  bool operator==(const GpuPart&) const = default;
};

/// The kind of a device, for sentences: one or several cores, a GPU or a part of one, or neither.
enum class DeviceKind : std::uint8_t { core, gpu, other };

/// Computes and has its own memory: a set of cores, a GPU, or a part of a GPU.
struct Device {
  std::string name;
  std::vector<int> cores;  // empty for a GPU
  Bytes memory;
  int node = 0;
  int machine = 0;  // the machine of its cores; several nodes may be parts of one machine
  int rank = 0;     // the process that runs it
  /// True if the cores that compute also carry messages, so that lanes take turns; otherwise lanes run in parallel.
  bool shared_lanes = true;
  Speed speed = {};
  std::optional<GpuPart> gpu = {};
  std::string product = {};  // cpu, cuda, or the device of a cluster file: RTX-3090
  DeviceKind kind = DeviceKind::core;

  /// True if collectives take turns with computing. On a part of a GPU they run on its own multiprocessors, which products fill;
  /// messages between two parts run on multiprocessors that belong to no part.
  bool shares_with_collectives() const { return shared_lanes || (gpu && gpu->of > 1); }
};

/// A connection between two devices: a message of n bytes takes latency + n / bandwidth. If two figures do not fit all sizes,
/// ranges of sizes have figures of their own.
struct Link {
  struct SizeRange {
    Bytes from;
    Nanoseconds latency;
    double bandwidth = 0;
    bool operator==(const SizeRange&) const = default;
  };

  Nanoseconds latency;
  double bandwidth = 0;                     // bytes per second; 0: no limit
  std::vector<SizeRange> size_ranges = {};  // in order of size
  /// For devices that carry messages with their own cores: the share of a core that messages take at each end while they use
  /// the whole bandwidth; above 1 if they take several cores.
  double core_share = 0;

  /// The figures for a message of this size: those of the last range of sizes that starts below it, or of the link itself.
  SizeRange at(double message) const;
  Nanoseconds time(Bytes message) const;
  bool operator==(const Link&) const = default;
};

/// The algorithm of collectives. In a broadcast or a reduction the root exchanges with each other member directly, unless the
/// algorithm is a tree.
///   ring           each to the next one
///   tree           in pairs, then pairs of pairs; not pipelined
///   direct         each to every other at once
///   hierarchical   rings within the nodes and between them; a plain ring if members do not fill nodes evenly
enum class Algorithm : std::uint8_t { ring, tree, direct, hierarchical };
std::string_view to_text(Algorithm algorithm);
/// A usage error lists the names.
Algorithm algorithm_by_name(std::string_view name);

/// Links between pairs of devices of a node, if no switch joins all of them.
struct Mesh {
  struct Pair {
    int a = 0;
    int b = 0;
    int links = 1;
  };
  std::vector<Pair> pairs;  // empty: a switch joins all
  double bandwidth = 0;     // bytes per second of a link, in each direction
  double forwarded = 1;     // the share of it that is left if a device in between forwards messages
};

/// The connections between devices: each device has a port to its node, and each node has ports to the network. A port has
/// its bandwidth in each direction. A bandwidth of zero means no limit.
struct Wiring {
  Link port;                // the port of each device
  Link network;             // the link of each network port of a node; its latency is that from device to device
  int network_ports = 1;    // per node; device k of a node uses port k modulo this
  double bus = 0;           // bytes per second, shared by all messages within a node
  Nanoseconds start = {};   // the start of each collective, in addition to the latency of its messages
  double own_pass = 0;      // in a ring each member also passes its own piece through its memory: the share of a round that takes
  double half_message = 0;  // bytes: pieces of a ring that are as small as this reach half of the bandwidth
  double switch_sums = 0;   // bytes per second: the payload over the time of an all_reduce that a switch sums; 0: none does
  std::int64_t switch_from = 2;  // the least members of such an all_reduce
  /// A second protocol of rings, for small messages: its start in addition to `start`, its latency per message, the share of the
  /// bandwidth that it reaches (0: there is none), and the largest piece of a ring, in bytes, for which it is taken (0: whenever it
  /// is faster).
  Nanoseconds quick_start = {};
  Nanoseconds quick_latency = {};
  double quick_share = 0;
  double quick_until = 0;
  /// An all_reduce of several nodes by two trees, each with half of the payload, which passes in pieces: the latency of a level
  /// between nodes and of a member within one, and the share of the bandwidth; a share of 0: there are none.
  Nanoseconds tree_level = {};
  Nanoseconds tree_member = {};
  double tree_share = 0;
  Mesh mesh = {};
  Algorithm algorithm = Algorithm::hierarchical;
};

/// An immutable description of devices and the links between them. Copies share it.
class Cluster {
 public:
  /// A cluster without a wiring has devices that share one memory: a message takes as long as a copy.
  explicit Cluster(std::vector<Device> devices, std::optional<Link> emulated_link = std::nullopt,
                   std::optional<Wiring> wiring = std::nullopt);

  const std::vector<Device>& devices() const { return body_->devices; }
  std::size_t size() const { return body_->devices.size(); }
  const Device& device(DeviceId id) const { return body_->devices[id.index()]; }
  /// The link that messages are slowed to on purpose, if the user asked for one.
  const std::optional<Link>& emulated_link() const { return body_->emulated_link; }
  const std::optional<Wiring>& wiring() const { return body_->wiring; }
  /// True if some core belongs to more than one device, so that devices take turns.
  bool oversubscribed() const;
  /// The largest number of ranks that share one GPU; 0 if there is no GPU.
  std::size_t most_ranks_on_a_gpu() const;

 private:
  struct Body {
    std::vector<Device> devices;
    std::optional<Link> emulated_link;
    std::optional<Wiring> wiring;
  };
  std::shared_ptr<const Body> body_;
};

/// `bandwidth=1GB/s,latency=50us`, either one may be left out (then no limit, or no latency); and `core=0.2`.
Link parse_link(std::string_view text);
/// A link's share of a core.
double parse_core(std::string_view text, std::string_view what);

}  // namespace baton::cluster
