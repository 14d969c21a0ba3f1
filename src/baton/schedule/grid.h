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

/// The arguments of a schedule.
struct Pipeline {
  std::int64_t devices = 1;
  /// Stages on each device.
  std::int64_t chunks = 1;
  std::int64_t micro_batches = 1;

  std::int64_t stages() const { return devices * chunks; }
};

std::int64_t stages(const Grid& grid);
std::int64_t micro_batches(const Grid& grid);

/// Per device: the most activations alive at once, each a micro-batch at a stage from its forward to the end
/// of its backward (with halves: of the weights', which reads the activation too).
std::vector<std::int64_t> in_flight(const Grid& grid);

}  // namespace baton::schedule
