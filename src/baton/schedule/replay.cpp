#include "baton/schedule/replay.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/schedule/run.h"

namespace baton::schedule {

std::int64_t Costs::of(Computation kind) const {
  switch (kind) {
    case Computation::forward:
      return forward;
    case Computation::backward:
      return backward;
    case Computation::backward_input:
      return backward_input;
    case Computation::backward_weight:
      return backward_weight;
  }
  check(false, "no kind of action has the number {}", static_cast<int>(kind));
  return 0;
}

std::int64_t Timing::busy(std::size_t device) const {
  std::int64_t sum = 0;
  for (const Placed& placed : rows.at(device)) {
    sum += placed.end - placed.start;
  }
  return sum;
}

double Timing::idle_share(std::size_t device) const {
  return makespan == 0 ? 0 : 1 - static_cast<double>(busy(device)) / static_cast<double>(makespan);
}

double Timing::idle_share() const {
  double sum = 0;
  for (std::size_t d = 0; d < rows.size(); ++d) {
    sum += idle_share(d);
  }
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

std::int64_t Timing::bubble(std::size_t device) const {
  const std::vector<Placed>& row = rows.at(device);
  return row.empty() ? 0 : row.back().end - row.front().start - busy(device);
}

Timing replay(const Grid& grid, const Costs& costs) {
  Timing timing{.rows = run_sound(grid, costs).rows};
  for (const std::vector<Placed>& row : timing.rows) {
    timing.makespan = std::max(timing.makespan, row.empty() ? 0 : row.back().end);
  }
  return timing;
}

}  // namespace baton::schedule
