#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/units.h"
#include "baton/sim/expand.h"
#include "baton/sim/links.h"

namespace baton::sim {

/// What flows over the links at one moment. Flows on one link share it evenly, and each goes as fast as the link allows
/// that holds it up the longest; what such a flow leaves unused on its other links, nobody takes up.
class Traffic {
 public:
  Traffic(const Links& links, std::size_t flows);

  /// A flow whose end was worked out anew.
  struct Change {
    std::uint32_t flow;
    std::uint32_t version;  // of the flow: earlier ends no longer count
    Nanoseconds end;
  };
  /// `flow` begins with these loads, which must live as long as it does. Returns whose ends that moves, its own included.
  const std::vector<Change>& begin(std::uint32_t flow, const std::vector<Load>& loads, Nanoseconds now);
  /// It ends, which moves others' ends.
  const std::vector<Change>& end(std::uint32_t flow, Nanoseconds now);

  std::uint32_t version(std::uint32_t flow) const { return flows_[flow].version; }

 private:
  struct Flow {
    const std::vector<Load>* loads = nullptr;
    double left = 0;    // of the whole
    double whole = 0;   // nanoseconds that the whole takes at the present pace
    Nanoseconds since;  // when `left` was worked out
    std::uint32_t version = 0;
    std::uint32_t seen = 0;  // in which round of changes
  };
  void change(std::uint32_t flow, Nanoseconds now);
  void change_all_beside(const std::vector<Load>& loads, Nanoseconds now);

  const Links& links_;
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> on_link_;  // the flows on each,
  std::vector<double> sharing_;                      // and how many messages they are
  std::vector<Change> changes_;
  std::uint32_t round_ = 0;
};

}  // namespace baton::sim
