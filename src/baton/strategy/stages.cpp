#include "baton/strategy/stages.h"

#include <algorithm>
#include <limits>

#include "baton/base/error.h"
#include "baton/strategy/placement.h"

namespace baton::strategy {
namespace {

/// The weight of a block on a stage: the arithmetic of a step for one sample, where the first block needs no gradient of its input;
/// or the bytes of its parameters with their gradients and states, of its activations, and of the inputs and targets next to it.
double weight_of(const model::Model& model, std::size_t block, const StageLoad& stage, Balance balance) {
  if (balance == Balance::work) {
    return static_cast<double>(model.forward_flops(block).count) * (block == 0 ? 2 : 3);
  }
  double parameters = 0;
  for (const model::Parameter& parameter : model.blocks()[block].parameters) {
    parameters += static_cast<double>(parameter.shape.elements());
  }
  std::int64_t elements = stage.rows_kept * model.blocks()[block].output().elements();
  elements += block == 0 ? stage.rows * model.input().elements() : 0;
  elements += block + 1 == model.blocks().size() ? stage.rows * model.output().elements() : 0;
  return parameters * stage.parameter_bytes + static_cast<double>(elements * stage.element_bytes);
}

/// The best way to end a stage before each block: the weight of the heaviest stage so far, and the first block of this one.
struct Cut {
  double heaviest = std::numeric_limits<double>::infinity();
  std::size_t begin = 0;
};

}  // namespace

std::vector<std::int64_t> balanced_stages(const model::Model& model, Balance balance, const std::vector<StageLoad>& stages) {
  const std::size_t blocks = model.blocks().size();
  check(stages.size() <= blocks, "{} stages of {} blocks", stages.size(), blocks);
  if (balance == Balance::even) {
    return even_split(static_cast<std::int64_t>(blocks), static_cast<std::int64_t>(stages.size()));
  }
  // Stage by stage: blocks weigh differently on different stages, so that filling them up from the front would not do.
  std::vector<std::vector<Cut>> cuts(stages.size() + 1, std::vector<Cut>(blocks + 1));
  cuts[0][0].heaviest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::vector<double> before(blocks + 1, 0);  // the weight of all blocks before this one on the stage
    for (std::size_t b = 0; b < blocks; ++b) {
      before[b + 1] = before[b] + weight_of(model, b, stages[s], balance);
    }
    for (std::size_t end = s + 1; end <= blocks; ++end) {
      Cut& best = cuts[s + 1][end];
      for (std::size_t begin = end; begin-- > s && before[end] - before[begin] < best.heaviest;) {
        const double heaviest = std::max(cuts[s][begin].heaviest, before[end] - before[begin]);
        best = heaviest < best.heaviest ? Cut{heaviest, begin} : best;
      }
    }
  }
  std::vector<std::int64_t> split(stages.size());
  std::size_t end = blocks;
  for (std::size_t s = stages.size(); s-- > 0;) {
    const std::size_t begin = cuts[s + 1][end].begin;
    split[s] = static_cast<std::int64_t>(end - begin);
    end = begin;
  }
  return split;
}

}  // namespace baton::strategy
