#include "baton/schedule/replay.h"

#include <algorithm>
#include <tuple>

#include "baton/schedule/flaw.h"

namespace baton::schedule {

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

std::vector<Action> sequence(const Grid& grid) {
  struct Ended {
    std::int64_t end;
    std::size_t device;
    Action action;
  };
  const Timing timing = replay(grid);
  std::vector<Ended> list;
  for (std::size_t d = 0; d < timing.rows.size(); ++d) {
    for (const Placed& placed : timing.rows[d]) {
      list.push_back({placed.end, d, placed.action});
    }
  }
  std::sort(list.begin(), list.end(),
            [](const Ended& a, const Ended& b) { return std::tie(a.end, a.device) < std::tie(b.end, b.device); });
  std::vector<Action> actions;
  actions.reserve(list.size());
  for (const Ended& ended : list) {
    actions.push_back(ended.action);
  }
  return actions;
}

}  // namespace baton::schedule
