#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/divide.h"
#include "baton/base/ids.h"
#include "baton/plan/plan.h"
#include "baton/schedule/grid.h"
#include "baton/strategy/layout.h"
#include "baton/strategy/table.h"

namespace baton::strategy {

/// The devices that hold the parts of a step, and the order in which they run.
struct Placement {
  /// One copy of the model and its share of the batch.
  struct Replica {
    plan::BatchRows rows;
    std::vector<DeviceId> device_of_block;
  };
  std::vector<Replica> replicas;
  /// The device that owns inputs, targets, parameters and losses for all replicas, if there is one. Otherwise each replica's
  /// devices own theirs.
  std::optional<DeviceId> owner;
  /// Over how many devices each block's tensors are divided: the block's own device and those numbered after it. The table says
  /// along which dimensions.
  std::int64_t shards = 1;
  /// The number of these devices that are in the plan, the first ones; 0: all. Collectives among them have the size of all.
  std::int64_t written_shards = 0;
  Table table = {};
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> blocks_of_stage;  // empty: one stage
  /// The order of the actions; its stages and micro-batches are those above. Without it a micro-batch goes forward and back
  /// before the next begins.
  std::optional<schedule::Grid> grid;
  Recompute recompute = Recompute::none;
  std::vector<std::string> devices;
};

/// `total` things over `parts`, in order, as evenly as possible: the first ones get one more.
inline std::vector<std::int64_t> even_split(std::int64_t total, std::int64_t parts) {
  return divide(total, parts, Remainder::first);
}

}  // namespace baton::strategy
