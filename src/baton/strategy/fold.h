#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/strategy/strategy.h"

namespace baton::strategy {

/// The devices that a collective of a folded plan brings together, in addition to the members that are written out.
enum class Spans : std::uint8_t { nothing, replicas, parts, both };

/// A step of which identical devices are written out once: one replica of many that are alike, and one part of divided tensors
/// if all parts are alike. Collectives between them have the size they would have and fewer members. For the simulator: a loss
/// is scaled as if there were two replicas, which does not change timing.
struct Folded {
  /// The last replica and a part. Where parameters are divided unevenly, no piece of another is larger, so none takes longer. If
  /// gradients are clipped it is the first part, which counts the most squares.
  plan::Plan plan;
  /// The devices of the cluster that each device of the plan stands for, replica by replica and in each part by part.
  std::vector<std::vector<DeviceId>> stands_for;
  std::int64_t parts = 1;    // parts of each replica that a device stands for
  std::vector<Spans> spans;  // by meeting
  /// The work and the messages of all devices. Where parameters are divided unevenly, some send other numbers of bytes than
  /// the last.
  plan::Totals totals;
  double flops = 0;  // the flops in `totals`, also if they are more than 64 bits hold
  /// The largest memory, per device of the plan, of those that it stands for whose pieces have other sizes; empty if all
  /// are like it.
  std::vector<Bytes> peak_of_others;
};

/// nullopt if neither replicas nor parts are alike (a strategy that is not a named layout, a batch or a dimension that does not
/// divide evenly, a delay on one device, nodes that they do not fill alike) or both too few to be worth it. Never compiles more
/// than two of each. What is compiled is verified by all rules: further parts are judged as the continuation of the two
/// (`plan::Limits::alike_parts`), further replicas compute the same of other samples.
std::optional<Folded> fold(const Request& request);

}  // namespace baton::strategy
