#include "baton/cluster/cluster.h"

#include <cmath>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::cluster {

Nanoseconds Link::time(Bytes message) const {
  const double flight = bandwidth > 0 ? static_cast<double>(message.count) / bandwidth * 1e9 : 0;
  return latency + Nanoseconds(std::llround(flight));
}

Cluster::Cluster(std::vector<Device> devices, std::optional<Link> emulated_link)
    : devices_(std::move(devices)), emulated_link_(emulated_link) {
  check(!devices_.empty(), "a cluster needs a device");
}

bool Cluster::oversubscribed() const {
  std::set<int> taken;
  for (const Device& device : devices_) {
    for (const int core : device.cores) {
      if (!taken.insert(core).second) {
        return true;
      }
    }
  }
  return false;
}

Link parse_link(std::string_view text) {
  Link link;
  for (const std::string_view setting : split(text, ',')) {
    const std::size_t equals = setting.find('=');
    const std::string key = canonical(setting.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : setting.substr(equals + 1);
    if (key == "bandwidth") {
      link.bandwidth = parse_bandwidth(value, "the link's bandwidth");
    } else if (key == "latency") {
      link.latency = parse_time(value, "the link's latency");
    } else {
      throw usage_error("link '{}' has '{}', but a link takes bandwidth=1GB/s,latency=50us", text, setting);
    }
  }
  return link;
}

}  // namespace baton::cluster
