#include "baton/job/what_if.h"

#include <cmath>

#include "baton/base/duration.h"
#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::job {
namespace {

double parse_factor(std::string_view text, std::string_view key) {
  if (!text.ends_with('x')) {
    throw usage_error("--what-if has {}={}, but a factor looks like 2x or 0.5x", key, text);
  }
  return parse_number(text.substr(0, text.size() - 1), key, 1e-6, 1e6);
}

/// "2x", "+10us" or "2x+10us".
void set_latency(WhatIf& what_if, std::string_view value) {
  const std::size_t both = value.find("x+");
  if (value.starts_with('+') || both != std::string_view::npos) {
    const std::size_t plus = value.starts_with('+') ? 0 : both + 1;
    what_if.longer = parse_time(value.substr(plus + 1), "the latency of --what-if");
    value = value.substr(0, plus);
  }
  if (!value.empty()) {
    what_if.latency = parse_factor(value, "latency");
  }
}

}  // namespace

WhatIf parse_what_if(std::string_view text) {
  WhatIf what_if;
  if (text.empty()) {
    return what_if;
  }
  for_each_setting(text, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (key == "compute") {
      what_if.compute = parse_factor(value, key);
    } else if (key == "link") {
      what_if.link = parse_factor(value, key);
    } else if (key == "latency") {
      set_latency(what_if, value);
    } else {
      throw usage_error("--what-if has '{}', but takes compute=2x,link=0.5x,latency=+10us (or latency=2x, or latency=2x+10us)",
                        setting);
    }
  });
  return what_if;
}

cluster::Cluster changed(const cluster::Cluster& cluster, const WhatIf& what_if) {
  const auto change = [&](cluster::Link link) {
    const auto apply = [&](Nanoseconds& latency, double& bandwidth) {
      bandwidth *= what_if.link;
      latency = to_duration(static_cast<double>(latency.count) * what_if.latency) + what_if.longer;
    };
    apply(link.latency, link.bandwidth);
    link.core_share *= what_if.link;  // a byte takes as much of it as before
    for (cluster::Link::SizeRange& range : link.size_ranges) {
      apply(range.latency, range.bandwidth);
    }
    return link;
  };
  std::optional<cluster::Link> emulated = cluster.emulated_link();
  if (emulated) {
    emulated = change(*emulated);
  }
  std::optional<cluster::Wiring> wiring = cluster.wiring();
  if (wiring) {
    wiring->port = change(wiring->port);
    wiring->network = change(wiring->network);
    wiring->bus *= what_if.link;
  }
  return cluster::Cluster(cluster.devices(), emulated, wiring);
}

}  // namespace baton::job
