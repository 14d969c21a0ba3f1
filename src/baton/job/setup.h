#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "baton/cluster/cluster.h"
#include "baton/cost/software.h"
#include "baton/job/words.h"
#include "baton/model/model.h"
#include "baton/strategy/strategy.h"

/// The words of a job one by one, turned into what a plan is made of. A usage error names what is wrong with a word.
namespace baton::job {

std::uint64_t seed_of(const JobWords& words);
std::int64_t samples_of(const JobWords& words);
model::Model make_model(const JobWords& words);
/// nullopt if the words do not give it.
std::optional<Bytes> memory_of(const JobWords& words);
std::optional<cluster::Link> link_of(const JobWords& words);

/// The devices of another machine. If a link is given, it replaces the links of that machine.
cluster::Cluster imagine(const JobWords& words);
/// The fused tasks of simulated machines: all that exist.
plan::Target imagined_target();
/// Above this number of devices, identical replicas are folded into one.
std::size_t fold_beyond(const JobWords& words);

/// Model and cluster must outlive it.
strategy::Request make_request(const JobWords& words, const model::Model& model, const cluster::Cluster& cluster,
                               plan::Target target);
/// A usage error if the cluster's file gives no rate for a type that the step computes in: its arithmetic would cost nothing, or as
/// much as that of another type. Call it before a step is simulated with the file's figures.
void require_rates(const JobWords& words, const strategy::Request& request, const cost::Software& software);
/// A usage error if words that are right one by one do not go together.
void require_sense(const JobWords& words, const strategy::Request& request);

}  // namespace baton::job
