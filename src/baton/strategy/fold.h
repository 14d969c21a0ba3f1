#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/strategy/strategy.h"

namespace baton::strategy {

/// A step whose replicas are all alike, with one of them written out. Collectives between replicas have the size they
/// would have and one member that is there. For the simulator: a loss is scaled as if there were two replicas, which does not
/// change timing.
struct Folded {
  /// The last replica. Where parameters are divided unevenly, no piece of another is larger, so none takes longer.
  plan::Plan plan;
  /// By device of the plan: the devices of the cluster that it stands for, one of each replica.
  std::vector<std::vector<DeviceId>> stands_for;
  /// What all replicas do and send. Where parameters are divided unevenly, some send other numbers of bytes than the last.
  plan::Totals totals;
  /// Whether replicas hold pieces of parameters. Then what one needs depends on its place among the others, and all must be laid
  /// out.
  bool divided = false;
};

/// Nothing where replicas are not alike (a strategy that is no named layout, a batch that does not divide evenly,
/// a delay on one device, nodes that replicas do not fill alike) or too few to be worth it. Never compiles more than two of them.
std::optional<Folded> fold(const Request& request);
std::optional<Folded> fold(const Request& request, const Strategy& strategy);

}  // namespace baton::strategy
