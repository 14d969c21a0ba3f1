#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/cost/kept_times.h"
#include "baton/cost/software.h"
#include "baton/job/spec.h"
#include "baton/job/study.h"
#include "baton/job/what_if.h"
#include "baton/model/model.h"
#include "baton/plan/verify.h"
#include "baton/sim/simulate.h"
#include "baton/strategy/fold.h"
#include "baton/strategy/strategy.h"

namespace baton::job {

/// A plan that was checked and laid out, to be simulated.
struct LaidOutPlan {
  plan::Plan plan;
  sim::StandsFor stands_for = {};  // empty, unless equal replicas are folded
  plan::Totals totals = {};        // what a step does and moves on all devices, those that were folded away among them
  double flops = 0;                // the flops in `totals`, also if they are more than 64 bits hold
  std::vector<Bytes> peak = {};    // by device: what the plan lays out; of folded replicas, the largest

  /// The number of devices that each one of the plan stands for.
  std::int64_t copies() const { return static_cast<std::int64_t>(stands_for.copies()); }
};

/// The limits that a plan is checked against.
using LimitsOf = std::function<plan::Limits(const plan::Plan& plan)>;

/// A `fold_beyond` that no number of devices exceeds.
constexpr std::size_t never_fold = std::numeric_limits<std::size_t>::max();
/// The treatment of a request that cannot be folded: its plan is written out, or refused because it would be very large.
enum class Unfolded : std::uint8_t { written_out, refused };
/// Refuses a request whose plan would fill the memory of the machine that compiles it (0: it is not known): `folded` if equal
/// devices may be left out.
void require_room(const strategy::Request& request, Bytes room, bool folded = false);
/// The plan of a request, folded if there are more devices than `fold_beyond` and replicas are alike; or a plan as it is. A usage
/// error says why it cannot be run, or that it does not fit in `room`, the memory of the machine that compiles it.
LaidOutPlan lay_out(const strategy::Request& request, std::size_t fold_beyond, const LimitsOf& limits,
                    Unfolded unfolded = Unfolded::written_out, std::optional<Bytes> room = {});
LaidOutPlan lay_out(plan::Plan plan, const LimitsOf& limits);

/// The devices of the cluster that each device of a folded plan stands for.
sim::StandsFor stands_for(const strategy::Folded& folded);

/// The devices that a folded plan is written for: the first of those that each stands for.
cluster::Cluster written_out(const cluster::Cluster& cluster, const sim::StandsFor& stands_for);

/// The time of a Compute or an Update on its device, by a user's own formula.
using Duration = std::function<Nanoseconds(const plan::Plan& plan, TaskId task)>;

/// A step on a machine that is not here, with the figures of its file, changed as `what_if` says. `own` replaces the times of
/// computing tasks. `kept` holds the times of tasks, for further steps of the same plan by the same software.
trace::StepTrace imagined_step(const plan::Plan& plan, const cluster::Cluster& cluster, const sim::StandsFor& stands_for,
                               const WhatIf& what_if, const cost::Software& software, const Duration& own = {},
                               std::shared_ptr<cost::KeptTimes> kept = nullptr);
/// The formula of its times and where they come from, and of any times if the job asks for a change.
std::string imagined_origin(const cluster::Cluster& cluster, const JobSpec& spec, const cost::Software& software);
std::string changed_origin(const std::string& origin, const JobSpec& spec);

/// The effect that a change of one thing would have on the step, in addition to what the job's own --what-if asks for.
struct Sensitivity {
  std::string knob;  // "compute twice as fast"
  Nanoseconds step;
  double gain;  // the share of the step that it saves
};
/// Each knob made twice as good, one at a time; the one that gains most comes first. `time_of` simulates a step.
std::vector<Sensitivity> sensitivities(const std::function<Nanoseconds(const WhatIf&)>& time_of, const WhatIf& now,
                                       Nanoseconds step);

/// A job on a machine that is not here: compiled, verified and simulated, with no more than its specification. Copies share the
/// times of tasks that were asked for, so all of them belong to one thread.
class Scenario {
 public:
  /// The constructor does everything; a usage error says why it cannot, in the words of the command line.
  explicit Scenario(const JobSpec& spec);

  const model::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const strategy::Request& request() const { return request_; }
  const LaidOutPlan& laid() const { return laid_; }
  const trace::StepTrace& step() const { return step_; }
  const Study& study() const { return study_; }
  std::string cost_origin() const { return imagined_origin(cluster_, spec_, software_); }
  std::vector<Sensitivity> sensitivities() const;

 private:
  JobSpec spec_;
  model::Model model_;
  cluster::Cluster cluster_;
  WhatIf what_if_;
  cost::Software software_;
  strategy::Request request_;
  LaidOutPlan laid_;
  std::shared_ptr<cost::KeptTimes> kept_ = std::make_shared<cost::KeptTimes>();  // the times of the plan's tasks
  trace::StepTrace step_;
  Study study_;
};

}  // namespace baton::job
