#include "baton/strategy/tensor_split.h"

#include "baton/base/error.h"

namespace baton::strategy {
namespace {

struct Place {
  std::size_t block;
  std::size_t node;
};

/// The Linear nodes of a stage, in order.
std::vector<Place> linears(const model::Model& model, std::size_t first, std::size_t end) {
  std::vector<Place> places;
  for (std::size_t b = first; b < end; ++b) {
    for (std::size_t n = 0; n < model.blocks()[b].nodes.size(); ++n) {
      if (std::holds_alternative<op::Linear>(model.blocks()[b].nodes[n].op)) {
        places.push_back({b, n});
      }
    }
  }
  return places;
}

}  // namespace

std::vector<std::vector<NodeSplit>> tensor_splits(const model::Model& model, const std::vector<std::int64_t>& blocks_of_stage,
                                                  std::int64_t shards) {
  std::vector<std::vector<NodeSplit>> splits;
  for (const model::Block& block : model.blocks()) {
    splits.emplace_back(block.nodes.size(), NodeSplit::whole);
  }
  std::size_t first = 0;
  for (std::size_t stage = 0; stage < blocks_of_stage.size() && shards > 1; ++stage) {
    const std::size_t end = first + static_cast<std::size_t>(blocks_of_stage[stage]);
    const std::vector<Place> places = linears(model, first, end);
    if (places.size() < 2) {
      throw usage_error(
          "tensor parallelism divides pairs of Linear layers, but stage {} of {} has {}: give each stage two "
          "blocks at least",
          stage, model.name(), places.size());
    }
    for (std::size_t pair = 0; pair + 1 < places.size(); pair += 2) {
      const Place column = places[pair];
      const Place row = places[pair + 1];
      const std::int64_t features = model.blocks()[column.block].nodes[column.node].output.elements();
      if (features < shards) {
        throw usage_error("the {} features of {} cannot be divided over {} devices", features, model.blocks()[column.block].name,
                          shards);
      }
      for (Place at = column; at.block != row.block || at.node != row.node;) {
        splits[at.block][at.node] = NodeSplit::follow;
        if (++at.node == splits[at.block].size()) {
          at = {at.block + 1, 0};
        }
      }
      splits[column.block][column.node] = NodeSplit::column;
      splits[row.block][row.node] = NodeSplit::row;
    }
    first = end;
  }
  return splits;
}

}  // namespace baton::strategy
