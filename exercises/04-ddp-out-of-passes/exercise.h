#pragma once

#include "baton/plan/plan.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/strategy.h"
#include "baton/strategy/training_step.h"

/// A step of distributed data parallelism: every device has a replica of the model and its rows of the global batch (as even as
/// possible, the first devices one more); gradients are summed over the replicas, in buckets of the sizes that request.layout has,
/// while the backward goes on; every device updates its own copy with request.step.optimizer.
///
/// The passes are in baton/strategy/passes.h, Placement and training_step in baton/strategy/training_step.h. Devices have the names
/// request.cluster.device(DeviceId(d)).name.
baton::plan::Draft ddp(const baton::strategy::Request& request);
