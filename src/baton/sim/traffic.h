#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/units.h"
#include "baton/sim/expand.h"
#include "baton/sim/links.h"

namespace baton::sim {

/// The flows over the links at one moment. Flows on one link share it evenly, and each runs at the rate of its slowest
/// link; bandwidth that it leaves unused on its other links is not given to others.
class Traffic {
 public:
  Traffic(const Links& links, std::size_t flows);

  /// A flow whose end was computed again.
  struct Change {
    std::uint32_t flow;
    std::uint32_t version;  // version of the flow: ends of earlier versions are outdated
    Nanoseconds end;
  };
  /// Starts `flow` with these loads, which must outlive it. Returns the flows whose ends change, including itself.
  const std::vector<Change>& begin(std::uint32_t flow, const std::vector<Load>& loads, Nanoseconds now);
  const std::vector<Change>& begin(std::uint32_t, std::vector<Load>&&, Nanoseconds) = delete;
  /// Ends a flow; returns the flows whose ends change.
  const std::vector<Change>& end(std::uint32_t flow, Nanoseconds now);

  std::uint32_t version(std::uint32_t flow) const { return flows_[flow].version; }

 private:
  struct Flow {
    const std::vector<Load>* loads = nullptr;
    double left = 0;    // the share of the flow that is left
    double whole = 0;   // nanoseconds for the whole flow at the current rate
    Nanoseconds since;  // when `left` was computed
    std::uint32_t version = 0;
    std::uint32_t seen = 0;  // the round of changes in which the flow was last seen
  };
  void change(std::uint32_t flow, Nanoseconds now);
  void change_all_beside(const std::vector<Load>& loads, Nanoseconds now);

  const Links& links_;
  std::vector<Flow> flows_;
  std::vector<std::vector<std::uint32_t>> on_link_;  // the flows of each link
  std::vector<double> sharing_;                      // the number of messages of each link
  std::vector<Change> changes_;
  std::uint32_t round_ = 0;
};

}  // namespace baton::sim
