#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/plan/target.h"
#include "baton/strategy/delays.h"
#include "baton/strategy/layout.h"
#include "baton/strategy/step.h"
#include "baton/strategy/strategies.h"

namespace baton::strategy {

/// All inputs of a plan. Equal requests give the identical plan on every rank.
struct Request {
  model::Model model;
  cluster::Cluster cluster;
  Strategy strategy = {};  // single
  Step step = {};
  Layout layout = {};
  plan::Target target = {};
  std::vector<DelayRequest> delays = {};
  /// The number of the devices that tensors are divided over which are in the plan, each with its part; 0: all. The cluster
  /// has only these. A plan with fewer is not a whole step: `fold` makes one device stand for the others.
  std::int64_t written_parts = 0;
};

/// The split of the request's step, in words: the strategy's name, or `dp 2 × pp 2, zero 1, 1f1b, 8 micro-batches` if the
/// name does not say everything.
std::string describe(const Request& request);
/// The title of a plan of the request: how it is split, the model, the batch, the devices, and the precision if it is not
/// fp32.
std::string title_of(const Request& request);

/// The numbers of replicas, of pipeline devices of a replica and of parts of a tensor: their product is the number of
/// devices.
struct Axes {
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  std::int64_t tp = 1;
  std::int64_t written_parts = 0;  // Request::written_parts

  std::int64_t parts() const { return written_parts > 0 ? written_parts : tp; }
  /// Devices are numbered stage by stage, replica by replica, part by part.
  DeviceId device(std::int64_t stage, std::int64_t replica, std::int64_t part) const {
    return DeviceId(static_cast<std::size_t>((stage * dp + replica) * parts() + part));
  }
};
/// nullopt if the strategy has a function of its own.
std::optional<Axes> axes_of(const Request& request);
/// The schedule: one row per pipeline device of a replica; a single row if there is no pipeline. nullopt if the strategy has a
/// function of its own.
std::optional<schedule::Grid> grid_of(const Request& request);

/// True if the step has stages whose blocks would be others with a balance by work.
bool is_rebalanced_by_work(const Request& request);

/// The number of tasks of the request's plan, estimated by counting ops: exact to about a factor of two for named
/// layouts with all replicas and parts or, if they are folded, with one of each. Strategies with a function of their own have at
/// least these.
double estimated_tasks(const Request& request, bool folded = false);

/// Builds, fuses for the target, injects the delays and finishes.
plan::Plan compile(const Request& request);
/// A usage error if what a step computes and moves cannot be counted in 64 bits.
void refuse_uncountable(const Request& request);

}  // namespace baton::strategy
