#include "baton/schedule/grid.h"

#include <algorithm>

namespace baton::schedule {

std::int64_t stages(const Grid& grid) {
  std::int64_t count = 0;
  for (const auto& row : grid.rows) {
    for (const std::optional<Action>& cell : row) {
      count = std::max(count, cell ? std::int64_t{cell->stage} + 1 : 0);
    }
  }
  return count;
}

std::int64_t micro_batches(const Grid& grid) {
  std::int64_t count = 0;
  for (const auto& row : grid.rows) {
    for (const std::optional<Action>& cell : row) {
      count = std::max(count, cell ? std::int64_t{cell->micro_batch} + 1 : 0);
    }
  }
  return count;
}

std::vector<std::int64_t> in_flight(const Grid& grid) {
  std::vector<std::int64_t> most;
  for (const auto& row : grid.rows) {
    std::int64_t alive = 0;
    std::int64_t peak = 0;
    for (const std::optional<Action>& cell : row) {
      if (cell && cell->kind == Computation::forward) {
        peak = std::max(peak, ++alive);
      } else if (cell && cell->kind != Computation::backward_input) {
        --alive;
      }
    }
    most.push_back(peak);
  }
  return most;
}

}  // namespace baton::schedule
