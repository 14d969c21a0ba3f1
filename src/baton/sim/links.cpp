#include "baton/sim/links.h"

#include <algorithm>

namespace baton::sim {
namespace {

/// Looks for rings through all members of a mesh that share no link: first the rings there are, then the largest number of them
/// that fits. If there is none, a message may pass through a member in between.
class MeshRings {
 public:
  template <typename Joined>
  MeshRings(std::size_t count, Joined joined) : count_(count), links_(count * count) {
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        links_[a * count + b] = a == b ? 0 : joined(a, b);
      }
    }
    free_ = links_;
  }

  std::vector<std::vector<DeviceId>> through(const std::vector<DeviceId>& members) {
    std::vector<std::size_t> ring{0};
    list(ring, false);
    if (all_.empty()) {
      list(ring, true);
    }
    most_ = count_ * count_;
    for (std::size_t a = 0; a < count_; ++a) {
      std::size_t out = 0;
      for (std::size_t b = 0; b < count_; ++b) {
        out += static_cast<std::size_t>(free_[a * count_ + b]);
      }
      most_ = std::min(most_, out);
    }
    choose(0);
    std::vector<std::vector<DeviceId>> rings;
    for (const std::size_t number : best_) {
      rings.emplace_back();
      for (const std::size_t member : all_[number]) {
        rings.back().push_back(members[member]);
      }
    }
    return rings;
  }

 private:
  /// The members on the way of messages from one to the other: directly, or through the member whose links are widest.
  std::vector<std::size_t> hops(std::size_t a, std::size_t b) const {
    if (links_[a * count_ + b] > 0) {
      return {a, b};
    }
    std::size_t between = count_;
    int widest = 0;
    for (std::size_t c = 0; c < count_; ++c) {
      if (const int wide = std::min(links_[a * count_ + c], links_[c * count_ + b]); wide > widest) {
        widest = wide;
        between = c;
      }
    }
    return between == count_ ? std::vector<std::size_t>{} : std::vector<std::size_t>{a, between, b};
  }
  void list(std::vector<std::size_t>& ring, bool forwarding) {
    const auto may = [&](std::size_t a, std::size_t b) { return forwarding ? !hops(a, b).empty() : links_[a * count_ + b] > 0; };
    if (ring.size() == count_) {
      if (may(ring.back(), 0) && all_.size() < 512) {
        all_.push_back(ring);
      }
      return;
    }
    for (std::size_t next = 1; next < count_; ++next) {
      if (std::find(ring.begin(), ring.end(), next) == ring.end() && may(ring.back(), next)) {
        ring.push_back(next);
        list(ring, forwarding);
        ring.pop_back();
      }
    }
  }
  /// Takes the links of a ring, or gives them back; returns false if they are not free.
  bool take(const std::vector<std::size_t>& ring) {
    std::vector<std::size_t> taken;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const std::vector<std::size_t> way = hops(ring[i], ring[(i + 1) % ring.size()]);
      bool enough = !way.empty();
      for (std::size_t h = 0; enough && h + 1 < way.size(); ++h) {
        int& free = free_[way[h] * count_ + way[h + 1]];
        enough = free > 0;
        if (enough) {
          --free;
          taken.push_back(way[h] * count_ + way[h + 1]);
        }
      }
      if (!enough) {
        give_back(taken);
        return false;
      }
    }
    taken_.push_back(taken);
    return true;
  }
  void give_back(const std::vector<std::size_t>& links) {
    for (const std::size_t link : links) {
      ++free_[link];
    }
  }
  void choose(std::size_t from) {
    if (chosen_.size() > best_.size()) {
      best_ = chosen_;
    }
    for (std::size_t ring = from; ring < all_.size() && best_.size() < most_ && tries_ > 0; ++ring) {
      --tries_;
      if (take(all_[ring])) {
        chosen_.push_back(ring);
        choose(ring);  // a pair may have links for the same ring twice
        chosen_.pop_back();
        give_back(taken_.back());
        taken_.pop_back();
      }
    }
  }

  std::size_t count_;
  std::vector<int> links_;  // by two members,
  std::vector<int> free_;   // and those that no ring has taken
  std::vector<std::vector<std::size_t>> all_;
  std::vector<std::size_t> chosen_;
  std::vector<std::size_t> best_;
  std::vector<std::vector<std::size_t>> taken_;  // the links of each chosen ring
  std::size_t most_ = 0;
  int tries_ = 200000;
};

}  // namespace

Links::Links(const cluster::Cluster& cluster) {
  if (!cluster.wiring()) {
    return;
  }
  wiring_ = *cluster.wiring();
  const auto ports = static_cast<std::uint32_t>(wiring_.network_ports);
  std::vector<std::uint32_t> in_node;  // the number of devices of each node so far
  for (const cluster::Device& device : cluster.devices()) {
    const auto node = static_cast<std::uint32_t>(device.node);
    in_node.resize(std::max<std::size_t>(in_node.size(), node + 1), 0);
    places_.push_back({node, in_node[node], node * ports + in_node[node] % ports});
    ++in_node[node];
  }
  bandwidth_.assign(2 * places_.size(), wiring_.port.bandwidth);
  first_network_port_ = static_cast<std::uint32_t>(bandwidth_.size());
  bandwidth_.resize(bandwidth_.size() + std::size_t{2} * ports * in_node.size(), wiring_.network.bandwidth);
  first_bus_ = static_cast<std::uint32_t>(bandwidth_.size());
  bandwidth_.resize(bandwidth_.size() + in_node.size(), wiring_.bus);
  open_mesh(in_node.size());
}

void Links::open_mesh(std::size_t nodes) {
  const cluster::Mesh& mesh = wiring_.mesh;
  if (mesh.pairs.empty()) {
    return;
  }
  for (const cluster::Mesh::Pair& pair : mesh.pairs) {
    side_ = std::max(side_, static_cast<std::uint32_t>(std::max(pair.a, pair.b) + 1));
  }
  for (const DevicePosition& place : places_) {
    side_ = std::max(side_, place.in_node + 1);
  }
  links_of_pair_.assign(std::size_t{side_} * side_, 0);
  for (const cluster::Mesh::Pair& pair : mesh.pairs) {
    links_of_pair_[static_cast<std::size_t>(pair.a) * side_ + static_cast<std::size_t>(pair.b)] += pair.links;
    links_of_pair_[static_cast<std::size_t>(pair.b) * side_ + static_cast<std::size_t>(pair.a)] += pair.links;
  }
  between_.assign(links_of_pair_.size(), 0);
  for (std::uint32_t a = 0; a < side_; ++a) {
    for (std::uint32_t b = 0; b < side_; ++b) {
      int widest = 0;
      for (std::uint32_t c = 0; c < side_; ++c) {
        if (const int wide = std::min(joined(a, c), joined(c, b)); wide > widest) {
          widest = wide;
          between_[a * side_ + b] = c;
        }
      }
    }
  }
  first_pair_ = static_cast<std::uint32_t>(bandwidth_.size());
  for (std::size_t node = 0; node < nodes; ++node) {
    for (const int links : links_of_pair_) {
      bandwidth_.push_back(links * mesh.bandwidth);
    }
  }
}

bool Links::forwards(DeviceId from, DeviceId to) const {
  const DevicePosition& a = places_[from.index()];
  const DevicePosition& b = places_[to.index()];
  return side_ > 0 && from != to && a.node == b.node && joined(a.in_node, b.in_node) == 0;
}

std::vector<std::vector<DeviceId>> Links::rings(const std::vector<DeviceId>& members) const {
  const bool one_node = std::all_of(members.begin(), members.end(),
                                    [&](DeviceId one) { return places_[one.index()].node == places_[members[0].index()].node; });
  if (side_ == 0 || members.size() < 2 || !one_node) {
    return {};
  }
  return MeshRings(members.size(),
                   [&](std::size_t a, std::size_t b) {
                     return joined(places_[members[a].index()].in_node, places_[members[b].index()].in_node);
                   })
      .through(members);
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
  const DevicePosition& a = places_[from.index()];
  const DevicePosition& b = places_[to.index()];
  if (side_ > 0 && a.node == b.node) {
    path.kind = &wiring_.port;
    if (joined(a.in_node, b.in_node) > 0) {
      add(pair(a.node, a.in_node, b.in_node));
    } else {
      const std::uint32_t between = between_[a.in_node * side_ + b.in_node];
      add(pair(a.node, a.in_node, between));
      add(pair(a.node, between, b.in_node));
    }
    add(first_bus_ + a.node);
    return path;
  }
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
