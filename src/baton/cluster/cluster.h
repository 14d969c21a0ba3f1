#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/base/ids.h"
#include "baton/base/units.h"

namespace baton::cluster {

/// Something that computes and has memory of its own: here, a set of cores.
struct Device {
  std::string name;
  std::vector<int> cores;
  Bytes memory;
  int node = 0;
};

/// A way between two devices: a message of n bytes takes latency + n / bandwidth.
struct Link {
  Nanoseconds latency;
  double bandwidth = 0;  // bytes a second

  Nanoseconds time(Bytes message) const;
};

/// An immutable description of devices and the links between them.
class Cluster {
 public:
  explicit Cluster(std::vector<Device> devices, std::optional<Link> emulated_link = std::nullopt);

  const std::vector<Device>& devices() const { return devices_; }
  std::size_t size() const { return devices_.size(); }
  const Device& device(DeviceId id) const { return devices_[id.index()]; }
  /// The speed that messages are slowed to on purpose, where the user asked for it.
  const std::optional<Link>& emulated_link() const { return emulated_link_; }
  /// Whether some core belongs to more than one device, so that devices take turns.
  bool oversubscribed() const;

 private:
  std::vector<Device> devices_;
  std::optional<Link> emulated_link_;
};

/// `bandwidth=1GB/s,latency=50us`, either of them alone too (then no limit, or no latency).
Link parse_link(std::string_view text);

}  // namespace baton::cluster
