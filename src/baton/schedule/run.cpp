#include "baton/schedule/run.h"

#include <algorithm>
#include <deque>

#include "baton/base/error.h"

namespace baton::schedule {
namespace {

constexpr std::int64_t not_yet = -1;

/// The times at which a stage has computed a micro-batch's value for its neighbours, forward and backward.
struct Ends {
  std::int64_t forward = not_yet;
  std::int64_t backward = not_yet;
  Computation backward_kind = Computation::backward;
};

}  // namespace

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

bool Run::complete() const {
  return std::none_of(awaited.begin(), awaited.end(), [](const auto& action) { return action.has_value(); });
}

Orders orders_of(const Grid& grid) {
  Orders orders(grid.rows.size());
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    for (const std::optional<Action>& cell : grid.rows[d]) {
      if (cell) {
        orders[d].push_back(*cell);
      }
    }
  }
  return orders;
}

std::vector<std::int32_t> device_of_stage_unchecked(const Grid& grid) {
  std::vector<std::int32_t> devices(static_cast<std::size_t>(stages(grid)));
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    for (const std::optional<Action>& cell : grid.rows[d]) {
      if (cell) {
        devices[static_cast<std::size_t>(cell->stage)] = static_cast<std::int32_t>(d);
      }
    }
  }
  return devices;
}

Run run(const Orders& orders, const Costs& costs) {
  std::int32_t stage_count = 0;
  std::int32_t micro_batch_count = 0;
  for (const std::vector<Action>& order : orders) {
    for (const Action& action : order) {
      stage_count = std::max(stage_count, action.stage + 1);
      micro_batch_count = std::max(micro_batch_count, action.micro_batch + 1);
    }
  }
  Run result{.rows = std::vector<std::vector<Placed>>(orders.size()),
             .awaited = std::vector<std::optional<Action>>(orders.size()),
             .device_of_stage = std::vector<std::int32_t>(static_cast<std::size_t>(stage_count))};
  std::vector<Ends> ends(static_cast<std::size_t>(stage_count) * static_cast<std::size_t>(micro_batch_count));
  const auto at = [&](std::int32_t stage, std::int32_t micro_batch) -> Ends& {
    return ends[static_cast<std::size_t>(stage) * static_cast<std::size_t>(micro_batch_count) +
                static_cast<std::size_t>(micro_batch)];
  };
  for (std::size_t d = 0; d < orders.size(); ++d) {
    for (const Action& action : orders[d]) {
      result.device_of_stage[static_cast<std::size_t>(action.stage)] = static_cast<std::int32_t>(d);
      if (action.kind == Computation::backward_input) {
        at(action.stage, action.micro_batch).backward_kind = Computation::backward_input;
      }
    }
  }
  /// The action of a neighbouring stage that this one waits for.
  const auto upstream = [&](const Action& action) -> std::optional<Action> {
    if (action.kind == Computation::forward && action.stage > 0) {
      return Action{action.stage - 1, Computation::forward, action.micro_batch};
    }
    const bool passes_back = action.kind == Computation::backward || action.kind == Computation::backward_input;
    if (passes_back && action.stage + 1 < stage_count) {
      return Action{action.stage + 1, at(action.stage + 1, action.micro_batch).backward_kind, action.micro_batch};
    }
    return std::nullopt;
  };

  std::deque<std::size_t> ready;
  for (std::size_t d = 0; d < orders.size(); ++d) {
    ready.push_back(d);
  }
  while (!ready.empty()) {
    const std::size_t device = ready.front();
    ready.pop_front();
    std::vector<Placed>& row = result.rows[device];
    result.awaited[device].reset();
    while (row.size() < orders[device].size()) {
      const Action& action = orders[device][row.size()];
      std::int64_t start = row.empty() ? 0 : row.back().end;
      if (const std::optional<Action> before = upstream(action)) {
        const Ends& passed = at(before->stage, before->micro_batch);
        const std::int64_t there = before->kind == Computation::forward ? passed.forward : passed.backward;
        if (there == not_yet) {
          result.awaited[device] = before;
          break;
        }
        const std::int32_t from = result.device_of_stage[static_cast<std::size_t>(before->stage)];
        start = std::max(start, there + (static_cast<std::size_t>(from) == device ? 0 : costs.transfer));
      }
      const std::int64_t end = start + costs.of(action.kind);
      row.push_back({action, start, end});
      std::int32_t next_stage = -1;
      if (action.kind == Computation::forward) {
        at(action.stage, action.micro_batch).forward = end;
        next_stage = action.stage + 1;
      } else if (action.kind != Computation::backward_weight) {
        at(action.stage, action.micro_batch).backward = end;
        next_stage = action.stage - 1;
      }
      if (next_stage >= 0 && next_stage < stage_count) {
        const auto next = static_cast<std::size_t>(result.device_of_stage[static_cast<std::size_t>(next_stage)]);
        if (next != device && result.awaited[next] == action) {
          ready.push_back(next);
        }
      }
    }
  }
  return result;
}

Grid aligned(const Orders& orders) { return aligned(run(orders, slot_costs)); }

Grid aligned(const Run& whole) {
  check(whole.complete(), "a schedule of {} devices waits for itself", whole.rows.size());
  std::int64_t slots = 0;
  for (const std::vector<Placed>& row : whole.rows) {
    slots = std::max(slots, row.empty() ? 0 : row.back().end);
  }
  const auto devices = static_cast<std::int64_t>(whole.rows.size());
  if (slots * devices > most_cells) {
    throw usage_error("a grid of {} devices and {} time slots is too large: use fewer micro-batches or stages", devices, slots);
  }
  Grid grid;
  for (const std::vector<Placed>& row : whole.rows) {
    std::vector<std::optional<Action>>& cells = grid.rows.emplace_back(static_cast<std::size_t>(slots));
    for (const Placed& placed : row) {
      cells[static_cast<std::size_t>(placed.start)] = placed.action;
    }
  }
  return grid;
}

}  // namespace baton::schedule
