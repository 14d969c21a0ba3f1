#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "baton/cluster/cluster.h"
#include "baton/cost/software.h"
#include "baton/job/spec.h"
#include "baton/model/model.h"
#include "baton/strategy/strategy.h"

/// Makes the inputs of a plan from the specification of a job. A usage error says what cannot be looked up or combined.
namespace baton::job {

model::Model make_model(const JobSpec& spec);

/// The devices of another machine. If a link is given, it replaces the links of that machine.
cluster::Cluster imagine(const JobSpec& spec);
/// The fused tasks of simulated machines: ReLU and its gradient within products, and the plain SGD step within gradients and their
/// sums. Backends here may fuse more; the constants of simulated machines were chosen with these.
plan::Target imagined_target();
/// Above this number of devices, identical replicas are folded into one.
std::size_t fold_beyond(const JobSpec& spec);

strategy::Request make_request(const JobSpec& spec, const model::Model& model, const cluster::Cluster& cluster,
                               plan::Target target);
/// A usage error if the cluster's file gives no rate for a type that the step computes in: its arithmetic would cost nothing, or as
/// much as that of another type. Call it before a step is simulated with the file's figures.
void require_rates(const JobSpec& spec, const strategy::Request& request, const cost::Software& software);
/// A usage error if fields that are valid one by one cannot be combined.
void require_sense(const JobSpec& spec, const strategy::Request& request);

}  // namespace baton::job
