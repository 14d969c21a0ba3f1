#include "baton/schedule/flaw.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "baton/base/error.h"
#include "baton/schedule/text.h"

namespace baton::schedule {
namespace {

/// An action and its position in the grid.
struct Cell {
  Action action;
  std::size_t device = 0;
  std::size_t slot = 0;
};

/// Sorted by stage, micro-batch and kind, so that the actions of one stage and micro-batch are neighbours.
std::vector<Cell> sorted_cells(const Grid& grid) {
  std::vector<Cell> cells;
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    for (std::size_t slot = 0; slot < grid.rows[d].size(); ++slot) {
      if (grid.rows[d][slot]) {
        cells.push_back({*grid.rows[d][slot], d, slot});
      }
    }
  }
  std::sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) {
    return std::tie(a.action.stage, a.action.micro_batch, a.action.kind, a.device, a.slot) <
           std::tie(b.action.stage, b.action.micro_batch, b.action.kind, b.device, b.slot);
  });
  return cells;
}

/// The error among the actions of one stage and micro-batch, [begin, end) of the sorted cells; nullopt if there is none.
std::optional<std::string> flaw_of_one(std::int32_t stage, std::int32_t micro_batch, const Cell* begin, const Cell* end) {
  const auto find = [&](Computation kind) {
    const Cell* cell = std::find_if(begin, end, [&](const Cell& c) { return c.action.kind == kind; });
    return cell == end ? nullptr : cell;
  };
  const auto name = [&](Computation kind) { return to_text(Action{stage, kind, micro_batch}); };
  for (const Cell* cell = begin; cell != end && cell + 1 != end; ++cell) {
    if (cell[0].action == cell[1].action) {
      return fmt::format("{} is there twice", to_text(cell->action));
    }
  }
  const Cell* forward = find(Computation::forward);
  const Cell* whole = find(Computation::backward);
  const Cell* input = find(Computation::backward_input);
  const Cell* weight = find(Computation::backward_weight);
  if (forward == nullptr) {
    return fmt::format("{} is missing", name(Computation::forward));
  }
  if (whole != nullptr && (input != nullptr || weight != nullptr)) {
    return fmt::format("{} is the whole backward, so {} does part of it twice", name(Computation::backward),
                       to_text((input != nullptr ? input : weight)->action));
  }
  if (whole == nullptr && input == nullptr && weight == nullptr) {
    return fmt::format("{} is missing, or {} and {} in its place", name(Computation::backward), name(Computation::backward_input),
                       name(Computation::backward_weight));
  }
  if (whole == nullptr && (input == nullptr || weight == nullptr)) {
    return fmt::format("{} is missing", name(input == nullptr ? Computation::backward_input : Computation::backward_weight));
  }
  const Cell* backward = whole != nullptr ? whole : input;
  for (const auto& [first, second] : {std::pair{forward, backward}, std::pair{backward, weight}}) {
    if (second != nullptr && second->slot < first->slot) {
      return fmt::format("{} stands before {} on device {}", to_text(second->action), to_text(first->action), first->device);
    }
  }
  return std::nullopt;
}

/// The error among the actions, found before any is run; nullopt if there is none.
std::optional<std::string> flaw_of_actions(const Grid& grid) {
  const std::vector<Cell> cells = sorted_cells(grid);
  if (cells.empty()) {
    return "it has no action";
  }
  if (const Action& least = cells.front().action; least.stage < 0) {
    return fmt::format("it has a stage {}, and stages are counted from 0", least.stage);
  }
  for (std::size_t d = 0; d < grid.rows.size(); ++d) {
    if (std::none_of(grid.rows[d].begin(), grid.rows[d].end(), [](const auto& cell) { return cell.has_value(); })) {
      return fmt::format("device {} does nothing", d);
    }
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].action.micro_batch < 0) {
      return fmt::format("it has a micro-batch {}, and micro-batches are counted from 0", cells[i].action.micro_batch);
    }
    if (i > 0 && cells[i].action.stage == cells[i - 1].action.stage && cells[i].device != cells[i - 1].device) {
      return fmt::format("stage {} is on device {} with {} and on device {} with {}", cells[i].action.stage, cells[i - 1].device,
                         to_text(cells[i - 1].action), cells[i].device, to_text(cells[i].action));
    }
  }
  const std::int64_t stage_count = stages(grid);
  const std::int64_t micro_batch_count = micro_batches(grid);
  const Cell* begin = cells.data();
  const Cell* const last = begin + cells.size();
  // Ends at the first pair of a stage and a micro-batch that is not there, so after as many as there are
  // cells.
  for (std::int32_t stage = 0; stage < stage_count; ++stage) {
    for (std::int32_t micro_batch = 0; micro_batch < micro_batch_count; ++micro_batch) {
      const Cell* const end = std::find_if(
          begin, last, [&](const Cell& cell) { return cell.action.stage != stage || cell.action.micro_batch != micro_batch; });
      if (std::optional<std::string> reason = flaw_of_one(stage, micro_batch, begin, end)) {
        return reason;
      }
      begin = end;
    }
  }
  return std::nullopt;
}

/// The devices that wait for each other in a circle.
std::string deadlock(const Orders& orders, const Run& stuck) {
  std::size_t device = 0;
  while (!stuck.awaited[device]) {
    ++device;
  }
  const auto waits_for = [&](std::size_t d) {
    return static_cast<std::size_t>(stuck.device_of_stage[static_cast<std::size_t>(stuck.awaited[d]->stage)]);
  };
  // Each waiting device waits for another that waits; after as many steps as there are devices, we are in the cycle.
  for (std::size_t step = 0; step < orders.size(); ++step) {
    device = waits_for(device);
  }
  std::string text;
  const std::size_t first = device;
  do {
    const Action& next = orders[device][stuck.rows[device].size()];
    text += fmt::format("{}device {} cannot run {} before {} of device {}", text.empty() ? "it deadlocks: " : ", ", device,
                        to_text(next), to_text(*stuck.awaited[device]), waits_for(device));
    device = waits_for(device);
  } while (device != first);
  return text;
}

}  // namespace

std::vector<std::int32_t> device_of_stage(const Grid& grid) { return run_sound(grid, {}).device_of_stage; }

Run run_sound(const Grid& grid, const Costs& costs) {
  std::optional<std::string> reason = flaw_of_actions(grid);
  if (!reason) {
    const Orders orders = orders_of(grid);
    Run whole = run(orders, costs);
    if (whole.complete()) {
      return whole;
    }
    reason = deadlock(orders, whole);
  }
  throw usage_error("this schedule cannot run: {}", *reason);
}

std::optional<std::string> flaw(const Grid& grid) {
  if (std::optional<std::string> reason = flaw_of_actions(grid)) {
    return reason;
  }
  const Orders orders = orders_of(grid);
  const Run whole = run(orders, {});
  return whole.complete() ? std::nullopt : std::optional(deadlock(orders, whole));
}

Grid aligned_sound(const Grid& grid) { return aligned(run_sound(grid, slot_costs)); }

}  // namespace baton::schedule
