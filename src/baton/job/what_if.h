#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"

namespace baton::job {

/// Changes to a simulated machine. Factors above one make it faster or wider.
struct WhatIf {
  double compute = 1;  // the speed of computing
  double link = 1;     // the bandwidth of links; where devices carry messages themselves, how fast they do
  double latency = 1;  // the factor by which the latency of links grows
  Nanoseconds longer;  // the time that is added to it

  bool changes() const { return *this != WhatIf{}; }
  bool operator==(const WhatIf&) const = default;
};

/// `compute=2x,link=0.5x,latency=+10us`; a latency may also be scaled, `latency=2x`, or both, `latency=2x+10us`. A usage error
/// names what is wrong.
WhatIf parse_what_if(std::string_view text);

/// The cluster with its links changed.
cluster::Cluster changed(const cluster::Cluster& cluster, const WhatIf& what_if);

}  // namespace baton::job
