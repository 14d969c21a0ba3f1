#pragma once

#include <map>
#include <span>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"
#include "baton/plan/target.h"
#include "baton/strategy/delays.h"
#include "baton/strategy/step.h"
#include "baton/strategy/table.h"

/// The passes that strategies are made of. Each takes a draft and returns a draft; "Before" is what it needs,
/// "After" what it guarantees.
namespace baton::strategy {

/// Copies parameters to the devices that read them but do not own them, in one broadcast before everything else.
/// After: every task reads parameters of its own device.
plan::Draft replicate_parameters(plan::Draft draft);

/// Adds a send and a receive wherever a task reads a value of another device, directly after the task that wrote
/// it, but after the collectives of the reader's earlier tasks: these would otherwise wait in the lane for a value that is not
/// needed yet.
/// All meetings then have the same order on all devices, so there is no deadlock.
/// After: every task touches buffers of its own device only.
plan::Draft add_transfers(plan::Draft draft);

/// Devices along an axis of the mesh, by the place that they share on the other axes. Each device is in one group.
using DeviceGroups = std::vector<std::vector<DeviceId>>;

/// The layout of each parameter on replicas, by ordinal (Layouts::parameters), and the devices that are replicas of each
/// other.
struct Replication {
  std::vector<ParameterLayout> parameters;
  DeviceGroups groups;
};

/// Sums gradients over the replicas if the table asks for an all_reduce, in buckets, in the reverse order of the parameters; a
/// bucket is closed when it reaches its size, and each device reduces it directly after its own last gradient. Before: the devices
/// of a group have the same tasks in the same order; this remains so. After: they hold the same sums of these gradients.
plan::Draft all_reduce_gradients(plan::Draft draft, Bytes first_bucket, Bytes bucket, const Replication& replication);
/// Sums all gradients in the same way, over all devices that have one.
plan::Draft all_reduce_gradients(plan::Draft draft, Bytes first_bucket, Bytes bucket);

/// Sums the final gradients of some parameters over further devices: those of a group hold the same parameter, or the same part and
/// piece of it, and a term each. `groups` is by ordinal. Before: gradients are summed over the replicas. After: they are complete.
plan::Draft all_reduce_shared_gradients(plan::Draft draft, const std::map<std::uint32_t, DeviceGroups>& groups);

/// ZeRO: shards over the replicas what they would all hold, if the table asks for a reduce_scatter of gradients.
///   states      persistent parameters too; whole parameters are gathered at the start of each step and kept until its end,
///               gradients are reduce-scattered once they are final
///   gradients   each micro-batch's are reduce-scattered and added to the piece that a device keeps
///   parameters  a block's are gathered for its forward, freed, and gathered again for its backward; those of the next block are
///               gathered while this one computes
/// Each device gathers and scatters when its own tasks need it. Before: the devices of a group have the same tasks in the same
/// order; this remains so. After: these persistent parameters and their final gradients are pieces.
plan::Draft divide_over_replicas(plan::Draft draft, const Replication& replication);

/// Sums all gradients into those of `owner`, in one reduction after the last of them.
plan::Draft reduce_gradients_to(plan::Draft draft, DeviceId owner);

/// Adds the optimizer's step for every persistent parameter: one task per block and device, and its optimizer state.
/// Before: the device of such a parameter holds its final gradient.
plan::Draft add_updates(plan::Draft draft, const op::Optimizer& optimizer);

/// Adds up the squares of the final gradients, each part of each parameter once, and makes updates read the sum: the optimizer
/// clips. The devices of a group together hold all gradients, and add up their sums. Devices without updates take no part.
/// Before: updates are there, and come after the last gradient.
plan::Draft clip_gradients(plan::Draft draft, const DeviceGroups& groups);

/// Makes activations, gradients, inputs, targets and copies of parameters of the step's 16-bit type. Persistent parameters,
/// optimizer states, the residual stream, gradients of parameters if the step asks for it, and what ops ask to be float32 stay so.
/// Idempotent: run it again after passes that add buffers.
plan::Draft narrow_values(plan::Draft draft, const Step& step);

/// Copies each persistent parameter to the 16-bit `type` before everything else; all tasks but updates read the copy.
/// Before: values are narrow, parameters are read on their own device. After: every task computes in one type, and updates
/// read 16-bit gradients for float32 parameters.
plan::Draft cast_parameters(plan::Draft draft, DType type);

/// Scales the gradient of the loss, and makes updates divide by the scale. If a gradient on any device is not finite, all updates
/// of the step are skipped; the scale of the next step is adjusted at the end of each.
/// Before: updates are there, and come after the last gradient.
plan::Draft scale_loss(plan::Draft draft, const LossScale& settings);

/// Fuses tasks that the target runs as one, and drops the buffers between them.
plan::Draft fuse(plan::Draft draft, const plan::Target& target);

/// Gives each parameter, and all that is added to it or copied from it, the memory layout that the target wants.
plan::Draft set_layouts(plan::Draft draft, const plan::Target& target);

/// Allows every product to round float32 operands to tf32.
plan::Draft use_tf32(plan::Draft draft);

/// Gives each task the workspace that the target needs for it on its device.
plan::Draft set_workspaces(plan::Draft draft, const plan::Target& target, const cluster::Cluster& cluster);

/// Gives each persistent buffer of inputs or targets a second one, into which the rows of the next step are loaded while this step
/// runs. At the start of a step each device copies the rows that were loaded for it.
/// After: tasks read buffers that live for one step; those that are loaded persist.
plan::Draft load_ahead(plan::Draft draft);

/// Adds the requested delays before their phases.
plan::Draft inject_delays(plan::Draft draft, std::span<const DelayRequest> delays);

}  // namespace baton::strategy
