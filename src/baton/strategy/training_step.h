#pragma once

#include <optional>
#include <vector>

#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/schedule/grid.h"
#include "baton/strategy/layout.h"
#include "baton/strategy/step.h"
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

/// Forward, loss and backward of every replica, in the order of the grid; nothing passes between blocks of different devices
/// yet and nothing is updated. If tensors are divided, the conversions that the table asks for are there (sums over
/// the parts, and parts put together), except sums of gradients of parameters.
/// After: tasks may read buffers of other devices; gradients of each replica are where its blocks are; if the precision of
/// the step has 16 bits, so have all values but parameters.
plan::Draft training_step(const model::Model& model, const Step& step, const Placement& placement);

/// The number of samples that the model's ops take together, as norms over groups of samples do: a micro-batch has a
/// multiple of it.
std::int64_t samples_together(const model::Model& model);

/// `total` things over `parts`, in order, as evenly as possible: the first ones get one more.
std::vector<std::int64_t> even_split(std::int64_t total, std::int64_t parts);

}  // namespace baton::strategy
