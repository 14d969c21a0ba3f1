#pragma once

#include <cstdint>
#include <vector>

#include "baton/model/model.h"

namespace baton::strategy {

/// How the tensors around one node are divided over the shards of its block.
///   whole    nothing is divided: every shard does the same
///   column   a Linear whose outputs are divided: each shard makes some of the features
///   row      a Linear whose inputs are: each shard gives a term of a sum over the shards
///   follow   what comes in divided goes out divided, feature by feature
enum class NodeSplit : std::uint8_t { whole, column, row, follow };

/// By block and node. Within a stage a Linear is divided by column where another follows to be divided by row, so that
/// what enters and leaves a stage is whole; one without a partner stays whole. A usage error where nothing can be divided, or
/// where there are fewer features than shards.
std::vector<std::vector<NodeSplit>> tensor_splits(const model::Model& model, const std::vector<std::int64_t>& blocks_of_stage,
                                                  std::int64_t shards);

}  // namespace baton::strategy
