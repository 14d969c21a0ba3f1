#pragma once

#include <cstdint>

#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/strategy/placement.h"
#include "baton/strategy/step.h"

namespace baton::strategy {

/// Forward, loss and backward of every replica, in the order of the grid; nothing passes between blocks of different devices
/// yet and nothing is updated. If tensors are divided, the conversions that the table asks for are there (sums over
/// the parts, and parts put together), except sums of gradients of parameters.
/// After: tasks may read buffers of other devices; gradients of each replica are where its blocks are; if the precision of
/// the step has 16 bits, so have all values but parameters.
/// True if the result of a node is freed after the forward and recomputed in the backward under `Recompute::light`.
bool is_recomputed_light(const model::Block& block, const model::Node& node);
/// True if `Recompute::light` changes the step of a model.
bool has_light_results(const model::Model& model);

plan::Draft training_step(const model::Model& model, const Step& step, const Placement& placement);

/// The number of samples that the model's ops take together, as norms over groups of samples do: a micro-batch has a
/// multiple of it.
std::int64_t samples_together(const model::Model& model);

}  // namespace baton::strategy
