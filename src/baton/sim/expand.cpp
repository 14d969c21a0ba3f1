#include "baton/sim/expand.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace baton::sim {
namespace {

using cluster::Algorithm;
using plan::Collective;
using Members = std::vector<DeviceId>;

void sort_by_link(std::vector<Load>& loads) {
  std::stable_sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.link < b.link; });
}

/// Adds up the bytes that cross links in one leg.
class LegWriter {
 public:
  explicit LegWriter(const Links& links, double forwarded = 1) : links_(links), forwarding_(1 / forwarded) {}

  /// Before anything is sent.
  void wait(Nanoseconds time) { start_ += time; }
  /// For messages that are sent in no rounds.
  void wait_at_least(Nanoseconds time) { latency_ = std::max(latency_, time); }

  /// This many bytes, in as many messages one after the other as there are `rounds`. Where messages of that size reach less
  /// than the link's bandwidth, they count for more bytes.
  void send(DeviceId from, DeviceId to, double bytes, std::int64_t rounds, double load_factor = 1) {
    const Path path = links_.path(from, to);
    if (path.kind == nullptr) {
      return;
    }
    const cluster::Link::SizeRange piece = path.kind->at(bytes / static_cast<double>(std::max<std::int64_t>(1, rounds)));
    latency_ = std::max(latency_, piece.latency * rounds);
    const double slower = load_factor * (piece.bandwidth > 0 ? path.kind->bandwidth / piece.bandwidth : 1) *
                          (links_.forwards(from, to) ? forwarding_ : 1);
    for (const std::uint32_t link : path.through()) {
      loads_.push_back({link, bytes * slower});
    }
  }
  /// Each to the next, the last to the first; in a mesh by as many rings as it has, each with its share.
  void ring(const Members& members, double bytes, std::int64_t rounds, double load_factor = 1) {
    const std::vector<Members> rings = links_.rings(members);
    for (std::size_t r = 0; r < std::max<std::size_t>(1, rings.size()); ++r) {
      const Members& order = rings.empty() ? members : rings[r];
      const double share = bytes / static_cast<double>(std::max<std::size_t>(1, rings.size()));
      for (std::size_t i = 0; i < order.size(); ++i) {
        send(order[i], order[(i + 1) % order.size()], share, rounds, load_factor);
      }
    }
  }
  /// The port of each member carries this many bytes each way, at once.
  void ports(const Members& members, double bytes) { ring(members, bytes, 1); }
  Leg leg() {
    sort_by_link(loads_);
    Leg leg{start_ + latency_, {}};
    for (const Load& load : loads_) {
      if (!leg.loads.empty() && leg.loads.back().link == load.link) {
        leg.loads.back().bytes += load.bytes;
      } else {
        leg.loads.push_back(load);
      }
    }
    return leg;
  }

 private:
  const Links& links_;
  double forwarding_;  // how much more expensive messages are that a device in between passes on
  Nanoseconds start_;
  Nanoseconds latency_;
  std::vector<Load> loads_;  // a link may be there several times
};

class Expansion {
 public:
  Expansion(const Links& links, double bytes, const cluster::Wiring& wiring) : links_(links), bytes_(bytes), wiring_(wiring) {}

  /// All members pass `share` of the payload around in a ring, cut into as many pieces as there are members; once for a
  /// sum or for a spreading of it, twice for both. Rings of several groups turn side by side. The quick protocol waits less for
  /// each message within a node.
  void rings(const std::vector<Members>& groups, double share, std::int64_t turns, bool quick = false) {
    LegWriter writer(links_, wiring_.mesh.forwarded);
    if (legs_.empty()) {
      writer.wait(wiring_.start);
    }
    for (const Members& group : groups) {
      const auto n = static_cast<std::int64_t>(group.size());
      if (n > 1) {
        const auto rounds = static_cast<double>(turns * (n - 1));
        const double piece = share * bytes_ / static_cast<double>(n);
        const double own = 1 + wiring_.own_pass / rounds;
        if (quick) {
          writer.wait_at_least(wiring_.quick_start + wiring_.quick_latency * (turns * (n - 1)));
          writer.ring(group, piece * rounds, 0, own / wiring_.quick_share);
        } else {
          writer.ring(group, piece * rounds, turns * (n - 1), own * (1 + (piece > 0 ? wiring_.half_message / piece : 0)));
        }
      }
    }
    legs_.push_back(writer.leg());
  }
  /// The switch sums the data of all members, and spreads the sum.
  void in_switch(const Members& members) {
    LegWriter writer(links_, wiring_.mesh.forwarded);
    writer.wait(wiring_.start);
    writer.ports(members, bytes_ * wiring_.port.bandwidth / wiring_.switch_sums);
    legs_.push_back(writer.leg());
  }
  /// Two trees over the nodes, each with half of the payload in pieces that follow one another: every node receives and sends twice
  /// the payload, through all members' ports. Within a node a chain of members, or the switch, sums.
  void trees(const std::vector<Members>& nodes, bool in_switch) {
    LegWriter writer(links_, wiring_.mesh.forwarded);
    const auto members = static_cast<double>(nodes[0].size());
    const auto levels = static_cast<std::int64_t>(std::bit_width(nodes.size()) - 1);
    writer.wait(wiring_.start + wiring_.tree_level * (2 * levels));
    const double load_factor = 1 / wiring_.tree_share;
    for (const Members& node : nodes) {
      if (in_switch) {
        writer.ring(node, bytes_ * wiring_.port.bandwidth / wiring_.switch_sums, 0);
      } else if (node.size() > 1) {
        writer.wait_at_least(wiring_.tree_member * (2 * (static_cast<std::int64_t>(node.size()) - 1)));
        writer.ring(node, 2 * bytes_ * (members - 1) / members, 0, load_factor);
      }
    }
    std::vector<Members> columns(nodes[0].size());
    for (const Members& node : nodes) {
      for (std::size_t k = 0; k < node.size(); ++k) {
        columns[k].push_back(node[k]);
      }
    }
    for (const Members& column : columns) {
      writer.ring(column, 2 * bytes_ / members, 0, load_factor);
    }
    legs_.push_back(writer.leg());
  }
  /// Pairs, then pairs of pairs: towards the first member, or from it.
  void tree(const Members& members, bool back) {
    const auto rounds = static_cast<std::size_t>(std::bit_width(members.size() - 1));
    for (std::size_t r = 0; r < rounds; ++r) {
      const std::size_t reach = std::size_t{1} << (back ? r : rounds - 1 - r);
      LegWriter writer(links_, wiring_.mesh.forwarded);
      for (std::size_t i = 0; i + reach < members.size(); i += 2 * reach) {
        writer.send(members[back ? i + reach : i], members[back ? i : i + reach], bytes_, 1);
      }
      legs_.push_back(writer.leg());
    }
  }
  /// Every one of `from` sends its `share` of the payload to each of `to` at once.
  void direct(const Members& from, const Members& to, double share) {
    LegWriter writer(links_, wiring_.mesh.forwarded);
    for (const DeviceId a : from) {
      for (const DeviceId b : to) {
        if (a != b) {
          writer.send(a, b, share * bytes_, 1);
        }
      }
    }
    legs_.push_back(writer.leg());
  }
  std::vector<Leg> legs() { return std::move(legs_); }

 private:
  const Links& links_;
  double bytes_;
  const cluster::Wiring& wiring_;
  std::vector<Leg> legs_;
};

/// The members by node, in order of rank; empty if that would gain nothing or nodes are filled unevenly.
std::vector<Members> by_node(const Members& members, const cluster::Cluster& cluster) {
  std::map<int, Members> nodes;
  for (const DeviceId member : members) {
    nodes[cluster.device(member).node].push_back(member);
  }
  std::vector<Members> groups;
  for (auto& [node, group] : nodes) {
    groups.push_back(std::move(group));
  }
  const std::size_t size = groups[0].size();
  const bool even = std::all_of(groups.begin(), groups.end(), [&](const Members& group) { return group.size() == size; });
  return groups.size() > 1 && size > 1 && even ? groups : std::vector<Members>{};
}

/// For each k, a group of the k-th members of all groups.
std::vector<Members> across(const std::vector<Members>& groups) {
  std::vector<Members> columns(groups[0].size());
  for (const Members& group : groups) {
    for (std::size_t k = 0; k < group.size(); ++k) {
      columns[k].push_back(group[k]);
    }
  }
  return columns;
}

/// True if this many members of one node are summed by its switch.
bool switch_sums(std::size_t members, const cluster::Wiring& wiring) {
  return wiring.switch_sums > 0 && wiring.port.bandwidth > 0 && static_cast<std::int64_t>(members) >= wiring.switch_from;
}

/// On idle links.
double seconds_of(const std::vector<Leg>& legs, const Links& links) {
  double sum = 0;
  for (const Leg& leg : legs) {
    double longest = 0;
    for (const Load& load : leg.loads) {
      longest = std::max(longest, load.bytes * load.flows / links.bandwidth(load.link));
    }
    sum += static_cast<double>(leg.latency.count) * 1e-9 + longest;
  }
  return sum;
}

/// The fastest of the ways that the wiring has, which depends on the size.
class Fastest {
 public:
  Fastest(const Links& links, double bytes, const cluster::Wiring& wiring) : links_(links), bytes_(bytes), wiring_(wiring) {}

  template <typename Write>
  void consider(Write write) {
    Expansion expansion(links_, bytes_, wiring_);
    write(expansion);
    std::vector<Leg> legs = expansion.legs();
    if (const double seconds = seconds_of(legs, links_); best_.empty() || seconds < least_) {
      least_ = seconds;
      best_ = std::move(legs);
    }
  }
  std::vector<Leg> legs() { return std::move(best_); }

 private:
  const Links& links_;
  double bytes_;
  const cluster::Wiring& wiring_;
  double least_ = 0;
  std::vector<Leg> best_;
};

/// Rings within nodes and between them, the quick rings of one node, trees between nodes, or sums in the switch.
std::vector<Leg> hierarchical_all_reduce(const Members& members, const std::vector<Members>& nodes, double bytes,
                                         const Links& links, const cluster::Cluster& cluster) {
  const cluster::Wiring& wiring = *cluster.wiring();
  Fastest fastest(links, bytes, wiring);
  const bool one_node = std::all_of(members.begin(), members.end(),
                                    [&](DeviceId one) { return cluster.device(one).node == cluster.device(members[0]).node; });
  if (one_node && switch_sums(members.size(), wiring)) {
    fastest.consider([&](Expansion& expansion) { expansion.in_switch(members); });
    return fastest.legs();
  }
  const auto rings = static_cast<double>(std::max<std::size_t>(1, links.rings(members).size()));
  const double piece = bytes / static_cast<double>(members.size()) / rings;
  const bool quick = one_node && wiring.quick_share > 0 && (wiring.quick_until == 0 || piece <= wiring.quick_until);
  if (quick) {
    fastest.consider([&](Expansion& expansion) { expansion.rings({members}, 1, 2, true); });
    if (wiring.quick_until > 0) {
      return fastest.legs();
    }
  }
  fastest.consider([&](Expansion& expansion) {
    if (nodes.empty()) {
      expansion.rings({members}, 1, 2);
    } else {
      expansion.rings(nodes, 1, 1);
      expansion.rings(across(nodes), 1 / static_cast<double>(nodes[0].size()), 2);
      expansion.rings(nodes, 1, 1);
    }
  });
  if (!one_node && wiring.tree_share > 0) {
    std::vector<Members> trees = nodes;
    if (trees.empty()) {  // one member in each node, or nodes that are filled unevenly
      for (const DeviceId member : members) {
        trees.push_back({member});
      }
    }
    fastest.consider([&](Expansion& expansion) { expansion.trees(trees, switch_sums(trees[0].size(), wiring)); });
  }
  return fastest.legs();
}

void all_reduce(Expansion& expansion, const Members& members, Algorithm algorithm) {
  if (algorithm == Algorithm::tree) {
    expansion.tree(members, true);
    expansion.tree(members, false);
  } else if (algorithm == Algorithm::direct) {
    const double share = 1 / static_cast<double>(members.size());
    expansion.direct(members, members, share);
    expansion.direct(members, members, share);
  } else {
    expansion.rings({members}, 1, 2);
  }
}

/// Half an all-reduce: a reduce-scatter, or the all-gather that is the other half.
void half_reduce(Expansion& expansion, const Members& members, const std::vector<Members>& nodes, Algorithm algorithm,
                 bool gather) {
  if (algorithm == Algorithm::direct) {
    expansion.direct(members, members, 1 / static_cast<double>(members.size()));
  } else if (nodes.empty()) {
    expansion.rings({members}, 1, 1);
  } else {
    const double part = 1 / static_cast<double>(nodes[0].size());
    expansion.rings(gather ? across(nodes) : nodes, gather ? part : 1, 1);
    expansion.rings(gather ? nodes : across(nodes), gather ? 1 : part, 1);
  }
}

/// A broadcast, or, backwards, a reduction: but in a tree, all through the root's port.
void rooted(Expansion& expansion, const Members& members, Algorithm algorithm, bool back) {
  if (algorithm == Algorithm::tree) {
    expansion.tree(members, back);
  } else {
    const Members root{members[0]};
    expansion.direct(back ? members : root, back ? root : members, 1);
  }
}

std::vector<Leg> expand_one(const Collective* collective, const Members& members, double bytes, const Links& links,
                            const cluster::Cluster& cluster) {
  Expansion expansion(links, bytes, *cluster.wiring());
  if (collective == nullptr) {
    expansion.direct({members[0]}, {members[1]}, 1);
    return expansion.legs();
  }
  const Algorithm algorithm = cluster.wiring()->algorithm;
  const std::vector<Members> nodes = algorithm == Algorithm::hierarchical ? by_node(members, cluster) : std::vector<Members>{};
  const plan::MoveRule& rule = plan::rule_of(collective->kind);
  switch (rule.owner) {
    case plan::MoveRule::Owner::share:
      if (algorithm == Algorithm::hierarchical) {
        return hierarchical_all_reduce(members, nodes, bytes, links, cluster);
      }
      all_reduce(expansion, members, algorithm);
      break;
    case plan::MoveRule::Owner::root:
      rooted(expansion, members, algorithm, rule.sums);
      break;
    case plan::MoveRule::Owner::piece:
      half_reduce(expansion, members, nodes, algorithm, rule.spreads);
      break;
  }
  return expansion.legs();
}

/// Several meetings that are alike, as one: each link carries the messages of all.
std::vector<Leg> side_by_side(const std::vector<std::vector<Leg>>& meetings) {
  std::vector<Leg> together(meetings[0].size());
  for (std::size_t leg = 0; leg < together.size(); ++leg) {
    std::vector<Load> loads;
    for (const std::vector<Leg>& meeting : meetings) {
      together[leg].latency = std::max(together[leg].latency, meeting[leg].latency);
      loads.insert(loads.end(), meeting[leg].loads.begin(), meeting[leg].loads.end());
    }
    sort_by_link(loads);
    for (const Load& load : loads) {
      std::vector<Load>& sums = together[leg].loads;
      if (!sums.empty() && sums.back().link == load.link) {
        sums.back().bytes = std::max(sums.back().bytes, load.bytes);
        sums.back().flows += load.flows;
      } else {
        sums.push_back(load);
      }
    }
  }
  return together;
}

}  // namespace

std::vector<std::vector<DeviceId>> meetings_of(const plan::Plan& plan, MeetingId meeting, const cluster::Cluster& cluster,
                                               const StandsFor& stands_for) {
  const std::span<const TaskId> tasks = plan.members(meeting);
  Members written;  // in order of rank
  std::vector<std::pair<std::uint32_t, DeviceId>> ranked;
  for (const TaskId id : tasks) {
    ranked.emplace_back(plan::rank_of(plan[id]), plan[id].device);
  }
  std::sort(ranked.begin(), ranked.end());
  for (const auto& [rank, device] : ranked) {
    written.push_back(device);
  }
  if (stands_for.empty()) {
    return {written};
  }
  const Reach reach = stands_for.reach.empty() ? Reach::members : stands_for.reach[meeting.index()];
  const std::size_t parts = stands_for.parts;
  const std::size_t replicas = stands_for.copies() / parts;
  const bool over_replicas = reach == Reach::replicas || reach == Reach::all;
  const bool over_parts = reach == Reach::parts || reach == Reach::all;
  std::vector<Members> meetings;
  for (std::size_t r = 0; r < (over_replicas ? 1 : replicas); ++r) {
    for (std::size_t t = 0; t < (over_parts ? 1 : parts); ++t) {
      Members& members = meetings.emplace_back();
      for (const DeviceId device : written) {
        for (std::size_t replica = r; replica < (over_replicas ? replicas : r + 1); ++replica) {
          for (std::size_t part = t; part < (over_parts ? parts : t + 1); ++part) {
            members.push_back(stands_for.devices[device.index()][replica * parts + part]);
          }
        }
      }
      if (reach != Reach::members) {  // ranks are in the order of the devices
        std::sort(members.begin(), members.end());
      }
    }
  }
  std::set<int> nodes;
  for (const DeviceId device : meetings[0]) {
    nodes.insert(cluster.device(device).node);
  }
  std::erase_if(meetings, [&](const Members& members) {
    return std::none_of(members.begin(), members.end(),
                        [&](DeviceId device) { return nodes.contains(cluster.device(device).node); });
  });
  return meetings;
}

std::vector<Leg> expand(const plan::Plan& plan, MeetingId meeting, const Links& links, const cluster::Cluster& cluster,
                        const StandsFor& stands_for) {
  const plan::Task& first = plan[plan.members(meeting)[0]];
  double bytes = 0;
  for (const BufferId id : plan::payload(first)) {
    bytes += static_cast<double>(plan[id].size().count);
  }
  const auto* collective = std::get_if<Collective>(&first.action);
  std::vector<std::vector<Leg>> copies;
  for (const Members& members : meetings_of(plan, meeting, cluster, stands_for)) {
    copies.push_back(expand_one(collective, members, bytes, links, cluster));
  }
  return copies.size() == 1 ? std::move(copies[0]) : side_by_side(copies);
}

}  // namespace baton::sim
