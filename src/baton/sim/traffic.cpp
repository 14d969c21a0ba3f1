#include "baton/sim/traffic.h"

#include <algorithm>
#include <cmath>

#include "baton/base/duration.h"

namespace baton::sim {

Traffic::Traffic(const Links& links, std::size_t flows)
    : links_(links), flows_(flows), on_link_(links.size()), sharing_(links.size(), 0) {}

const std::vector<Traffic::Change>& Traffic::begin(std::uint32_t id, const std::vector<Load>& loads, Nanoseconds now) {
  Flow& flow = flows_[id];
  flow.loads = &loads;
  flow.left = 1;
  flow.whole = 0;
  flow.since = now;
  for (const Load& load : loads) {
    on_link_[load.link].push_back(id);
    sharing_[load.link] += load.flows;
  }
  changes_.clear();
  ++round_;
  change(id, now);
  change_all_beside(loads, now);
  return changes_;
}

const std::vector<Traffic::Change>& Traffic::end(std::uint32_t id, Nanoseconds now) {
  Flow& flow = flows_[id];
  ++flow.version;
  for (const Load& load : *flow.loads) {
    std::erase(on_link_[load.link], id);
    sharing_[load.link] -= load.flows;
  }
  changes_.clear();
  ++round_;
  change_all_beside(*flow.loads, now);
  return changes_;
}

void Traffic::change_all_beside(const std::vector<Load>& loads, Nanoseconds now) {
  for (const Load& load : loads) {
    for (const std::uint32_t other : on_link_[load.link]) {
      change(other, now);
    }
  }
}

void Traffic::change(std::uint32_t id, Nanoseconds now) {
  Flow& flow = flows_[id];
  if (flow.seen == round_) {
    return;
  }
  flow.seen = round_;
  double whole = 0;
  for (const Load& load : *flow.loads) {
    whole = std::max(whole, load.bytes * sharing_[load.link] / links_.bandwidth(load.link) * 1e9);
  }
  if (flow.whole > 0) {
    if (whole == flow.whole) {
      return;
    }
    flow.left = std::max(0.0, flow.left - static_cast<double>((now - flow.since).count) / flow.whole);
  }
  flow.since = now;
  flow.whole = whole;
  changes_.push_back({id, ++flow.version, now + to_duration(flow.left * whole)});
}

}  // namespace baton::sim
