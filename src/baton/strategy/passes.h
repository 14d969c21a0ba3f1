#pragma once

#include <span>

#include "baton/plan/plan.h"
#include "baton/strategy/step.h"

/// The passes that strategies are made of. Each takes a draft and gives a draft; each says what it needs and what
/// holds afterwards.
namespace baton::strategy {

/// Copies parameters to the devices that read them but do not own them, in one broadcast before everything else.
/// After: every task reads parameters of its own device.
plan::Draft replicate_parameters(plan::Draft draft);

/// Adds a send and a receive wherever a task reads what another device wrote or holds, right behind the task that
/// wrote it. All meetings then stand in one order on all devices, so none waits for another in a circle.
/// After: every task touches buffers of its own device only.
plan::Draft add_transfers(plan::Draft draft);

/// Sums the gradients of each parameter over the devices that hold one, in buckets, in the reverse order of the
/// parameters; a bucket is closed when it reaches its size, and reduced as soon as its last gradient is there.
/// After: every device holds the same gradients.
plan::Draft all_reduce_gradients(plan::Draft draft, Bytes first_bucket, Bytes bucket);

/// Sums all gradients into those of `owner`, in one reduction after the last of them.
plan::Draft reduce_gradients_to(plan::Draft draft, DeviceId owner);

/// Adds the optimizer's step for every parameter that lives on, a task a block and device, and the state it keeps.
/// Before: the device of such a parameter holds its final gradient.
plan::Draft add_updates(plan::Draft draft, const op::Optimizer& optimizer);

/// Joins tasks that the target runs in one piece, and drops the buffers between them.
plan::Draft fuse(plan::Draft draft, const Target& target);

/// Lays the weights, and all that is added to them or copied from them, in the target's order.
plan::Draft tile_weights(plan::Draft draft);

/// Puts delays in front of the phases they ask for.
plan::Draft inject_delays(plan::Draft draft, std::span<const DelayRequest> delays);

}  // namespace baton::strategy
