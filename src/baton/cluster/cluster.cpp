#include "baton/cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "baton/base/duration.h"
#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::cluster {
namespace {

const std::vector<std::string>& algorithm_names() {
  static const std::vector<std::string> names{"ring", "tree", "direct", "hierarchical"};
  return names;
}

}  // namespace

Link::SizeRange Link::at(double message) const {
  SizeRange found{Bytes(0), latency, bandwidth};
  for (const SizeRange& range : size_ranges) {
    if (message >= static_cast<double>(range.from.count)) {
      found = range;
    }
  }
  return found;
}

Nanoseconds Link::time(Bytes message) const {
  const SizeRange range = at(static_cast<double>(message.count));
  const double flight = range.bandwidth > 0 ? static_cast<double>(message.count) / range.bandwidth * 1e9 : 0;
  return range.latency + to_duration(flight);
}

std::string_view to_text(RateType type) {
  constexpr std::array<std::string_view, all_rate_types.size()> names{"f64", "f32", "tf32", "bf16", "f16", "f8"};
  return names[static_cast<std::size_t>(type)];
}

std::optional<RateType> rate_type(DType type) {
  switch (type) {
    case DType::f64:
      return RateType::f64;
    case DType::f32:
      return RateType::f32;
    case DType::bf16:
      return RateType::bf16;
    case DType::f16:
      return RateType::f16;
    case DType::i32:
      return std::nullopt;
  }
  return std::nullopt;
}

double Speed::rate(DType type) const {
  const double usual = rates[RateType::f32].value_or(0);
  const std::optional<RateType> own = rate_type(type);
  return own ? rates[*own].value_or(usual) : usual;
}

std::string_view to_text(Algorithm algorithm) { return algorithm_names()[static_cast<std::size_t>(algorithm)]; }

Algorithm algorithm_by_name(std::string_view name) {
  return static_cast<Algorithm>(index_of_name(algorithm_names(), name, "algorithm"));
}

Cluster::Cluster(std::vector<Device> devices, std::optional<Link> emulated_link, std::optional<Wiring> wiring)
    : body_(std::make_shared<const Body>(Body{std::move(devices), std::move(emulated_link), std::move(wiring)})) {
  check(!body_->devices.empty(), "a cluster needs a device");
}

std::size_t Cluster::most_ranks_on_a_gpu() const {
  std::map<int, std::set<int>> ranks;  // by GPU
  for (const Device& device : body_->devices) {
    if (device.gpu) {
      ranks[device.gpu->unit].insert(device.rank);
    }
  }
  std::size_t most = 0;
  for (const auto& [unit, sharing] : ranks) {
    most = std::max(most, sharing.size());
  }
  return most;
}

bool Cluster::oversubscribed() const {
  std::set<std::pair<int, int>> taken;
  for (const Device& device : body_->devices) {
    for (const int core : device.cores) {
      if (!taken.emplace(device.machine, core).second) {
        return true;
      }
    }
  }
  return false;
}

double parse_core(std::string_view text, std::string_view what) { return parse_number(text, what, 0, 1024); }

Link parse_link(std::string_view text) {
  Link link;
  for_each_setting(text, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (key == "bandwidth") {
      link.bandwidth = parse_bandwidth(value, "the link's bandwidth");
    } else if (key == "latency") {
      link.latency = parse_time(value, "the link's latency");
    } else if (key == "core") {
      link.core_share = parse_core(value, "the link's core");
    } else {
      throw usage_error("link '{}' has '{}', but a link takes bandwidth=1GB/s,latency=50us and, to be simulated, core=0.2", text,
                        setting);
    }
  });
  return link;
}

}  // namespace baton::cluster
