#include "baton/strategy/stages.h"

#include <algorithm>
#include <numeric>

#include "baton/base/error.h"
#include "baton/strategy/training_step.h"

namespace baton::strategy {
namespace {

/// What a block weighs on a stage: the arithmetic of a step for one sample, where the first block needs no gradient of its input;
/// or the elements of its parameters, of what it keeps of them, of its activations, and of the inputs and targets beside it.
std::int64_t weight_of(const model::Model& model, std::size_t block, const StageLoad& stage, Balance balance) {
  if (balance == Balance::work) {
    return model.forward_flops(block).count * (block == 0 ? 2 : 3);
  }
  std::int64_t elements = 0;
  for (const model::Parameter& parameter : model.blocks()[block].parameters) {
    elements += stage.copies * parameter.shape.elements();
  }
  elements += stage.rows_kept * model.blocks()[block].output().elements();
  elements += block == 0 ? stage.rows * model.input().elements() : 0;
  elements += block + 1 == model.blocks().size() ? stage.rows * model.output().elements() : 0;
  return elements;
}

using Weights = std::vector<std::vector<std::int64_t>>;  // by stage, then by block

/// Fills stages from the front with at most `limit` each, keeping a block for each stage to come. Nothing where it does not fit.
std::vector<std::int64_t> packed(const Weights& weights, std::int64_t limit) {
  std::vector<std::int64_t> split;
  const std::size_t blocks = weights[0].size();
  std::size_t next = 0;
  for (std::size_t stage = 0; stage < weights.size(); ++stage) {
    std::int64_t sum = 0;
    std::int64_t count = 0;
    while (next < blocks && blocks - next > weights.size() - stage - 1 && sum + weights[stage][next] <= limit) {
      sum += weights[stage][next++];
      ++count;
    }
    if (count == 0) {
      return {};
    }
    split.push_back(count);
  }
  return next == blocks ? split : std::vector<std::int64_t>{};
}

}  // namespace

std::vector<std::int64_t> balanced_stages(const model::Model& model, Balance balance, const std::vector<StageLoad>& stages) {
  const std::size_t blocks = model.blocks().size();
  if (stages.size() > blocks) {
    throw usage_error("{} has {} block{}, which cannot be split over {} stages: each needs a block at least", model.name(),
                      blocks, blocks == 1 ? "" : "s", stages.size());
  }
  if (balance == Balance::even) {
    return even_split(static_cast<std::int64_t>(blocks), static_cast<std::int64_t>(stages.size()));
  }
  Weights weights(stages.size(), std::vector<std::int64_t>(blocks));
  std::int64_t high = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (std::size_t b = 0; b < blocks; ++b) {
      weights[s][b] = weight_of(model, b, stages[s], balance);
    }
    high = std::max(high, std::accumulate(weights[s].begin(), weights[s].end(), std::int64_t{0}));
  }
  std::int64_t low = 0;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    (packed(weights, middle).empty() ? low : high) = packed(weights, middle).empty() ? middle + 1 : middle;
  }
  return packed(weights, low);
}

}  // namespace baton::strategy
