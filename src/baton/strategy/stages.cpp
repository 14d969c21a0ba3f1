#include "baton/strategy/stages.h"

#include <algorithm>
#include <numeric>

#include "baton/base/error.h"
#include "baton/strategy/training_step.h"

namespace baton::strategy {
namespace {

/// What a block weighs: its arithmetic for one sample, or the bytes of its parameters and of the activations of all rows.
std::int64_t weight_of(const model::Model& model, std::size_t block, std::int64_t rows, Balance balance) {
  if (balance == Balance::work) {
    return model.forward_flops(block).count;
  }
  std::int64_t elements = 0;
  for (const model::Parameter& parameter : model.blocks()[block].parameters) {
    elements += parameter.shape.elements();
  }
  return elements + rows * model.blocks()[block].output().elements();
}

/// Fills stages from the front with at most `limit` each, keeping a block for each stage to come. Nothing where it does not fit.
std::vector<std::int64_t> packed(const std::vector<std::int64_t>& weights, std::int64_t stages, std::int64_t limit) {
  std::vector<std::int64_t> split;
  std::size_t next = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    std::int64_t sum = 0;
    std::int64_t count = 0;
    while (next < weights.size() && weights.size() - next > static_cast<std::size_t>(stages - stage - 1) &&
           sum + weights[next] <= limit) {
      sum += weights[next++];
      ++count;
    }
    if (count == 0) {
      return {};
    }
    split.push_back(count);
  }
  return next == weights.size() ? split : std::vector<std::int64_t>{};
}

}  // namespace

std::vector<std::int64_t> balanced_stages(const model::Model& model, std::int64_t stages, std::int64_t rows, Balance balance) {
  const auto blocks = static_cast<std::int64_t>(model.blocks().size());
  if (stages > blocks) {
    throw usage_error("{} has {} block{}, which cannot be split over {} stages: each needs a block at least", model.name(),
                      blocks, blocks == 1 ? "" : "s", stages);
  }
  if (balance == Balance::even) {
    return even_split(blocks, stages);
  }
  std::vector<std::int64_t> weights;
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    weights.push_back(weight_of(model, b, rows, balance));
  }
  std::int64_t low = *std::max_element(weights.begin(), weights.end());
  std::int64_t high = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    (packed(weights, stages, middle).empty() ? low : high) = packed(weights, stages, middle).empty() ? middle + 1 : middle;
  }
  return packed(weights, stages, low);
}

}  // namespace baton::strategy
