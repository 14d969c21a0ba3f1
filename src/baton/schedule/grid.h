#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace baton::schedule {

/// A forward; a whole backward; or its two halves, the gradient of the input and the gradient of the weights.
enum class Computation : std::uint8_t { forward, backward, backward_input, backward_weight };

/// One piece of work: what a stage does for a micro-batch. In PyTorch's notation `2F0`, with B, I and W for
/// the backward.
struct Action {
  std::int32_t stage = 0;
  Computation kind = Computation::forward;
  std::int32_t micro_batch = 0;

  auto operator<=>(const Action&) const = default;
};

/// A schedule as data: one row per device, one column per time slot; a cell is empty if the device waits. Only
/// the order within a row counts: the slots show when the actions would run if each took one slot.
struct Grid {
  std::vector<std::vector<std::optional<Action>>> rows;

  bool operator==(const Grid&) const = default;
};

std::int64_t stages(const Grid& grid);
std::int64_t micro_batches(const Grid& grid);
/// The device of each stage. The grid must have no flaw.
std::vector<std::int32_t> device_of_stage(const Grid& grid);

/// Explains why the grid cannot run: an action that is missing or appears twice, a stage on two devices, a whole backward in
/// addition to its halves, a backward before its forward, or a deadlock, with the devices that wait for each other. Empty if the
/// grid can run.
std::optional<std::string> flaw(const Grid& grid);

/// All actions in one order in which each comes after what it waits for and each device's own keep their
/// row's order: as they would end with a backward as long as two forwards, ties by device, so that values are sent in
/// the order in which they are made. A usage error names the flaw.
std::vector<Action> sequence(const Grid& grid);

/// Per device: the most activations alive at once, each a micro-batch at a stage from its forward to the end
/// of its backward (with halves: of the weights', which reads the activation too).
std::vector<std::int64_t> in_flight(const Grid& grid);

}  // namespace baton::schedule
