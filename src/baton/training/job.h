#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/machine.h"
#include "baton/cost/software.h"
#include "baton/exec/backend.h"
#include "baton/exec/run.h"
#include "baton/job/spec.h"
#include "baton/job/what_if.h"
#include "baton/model/model.h"
#include "baton/ranks/world.h"
#include "baton/strategy/fold.h"
#include "baton/strategy/strategy.h"
#include "baton/training/job_data.h"
#include "baton/training/overrides.h"

namespace baton::training {

using job::changed;
using job::is_schedule_file;
using job::is_this_machine;
using job::JobField;
using job::JobSpec;
using job::parse_what_if;
using job::set_field;
using job::this_machine;
using job::WhatIf;
using job::with_software;

/// All options, in the order of the help, and with the backends that there are here.
const std::vector<JobField>& job_fields();
/// The field with this spelling, in which dashes and underscores are the same; nullptr if there is none.
const JobField* find_field(std::string_view name);

/// The job that a specification describes. The constructor checks everything, before anything starts.
class Job {
 public:
  /// With several ranks every rank makes the job, and its devices are those of all ranks.
  Job(const JobSpec& spec, cluster::Machine machine, std::shared_ptr<ranks::World> world = nullptr, JobOverrides overrides = {});

  const JobSpec& spec() const { return spec_; }
  const cluster::Machine& machine() const { return machine_; }
  const model::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const exec::Backend& backend() const { return *backend_; }
  /// The ranks that run it together; nullptr if this process runs it alone.
  const std::shared_ptr<ranks::World>& world() const { return world_; }
  const strategy::Request& request() const { return request_; }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(spec_.seed); }
  std::int64_t samples() const { return spec_.samples; }
  /// The training data; null for random numbers.
  const JobData* data() const { return data_.get(); }
  exec::DataOptions data_options() const {
    return {.seed = seed(), .samples = samples(), .feed = data_ ? data_->training() : nullptr};
  }
  /// The parts that the calling program supplied itself.
  const JobOverrides& overrides() const { return overrides_; }
  plan::Plan compile() const;
  /// True if the job is simulated and not run: on a machine of a cluster file, or on this machine by tasks that are timed first.
  bool simulated() const { return !spec_.cluster.empty(); }
  /// True if it is simulated on a machine of a cluster file, and not on this one.
  bool imagined() const;
  /// The program that is simulated on it.
  const cost::Software& software() const { return software_; }
  /// Changes to the simulated machine.
  const WhatIf& what_if() const { return spec_.what_if; }
  /// The plan of one replica that stands for all; nullopt if the replicas differ or folding is off.
  std::optional<strategy::Folded> fold() const;
  /// If another machine is simulated: above this number of devices, identical replicas are folded into one.
  std::size_t fold_beyond() const { return fold_beyond_; }
  /// The limits that its plan is checked against: memory, and for a run on this machine the kernels.
  plan::Limits limits(const plan::Plan& plan) const;
  /// "4 devices share 2 cores ..."; empty if they do not share.
  std::string oversubscription() const;

 private:
  struct Ready {};
  Job(Ready ready, const JobSpec& spec, cluster::Machine machine, std::shared_ptr<ranks::World> world, JobOverrides overrides);
  void take_schedule();
  void open_data();

  JobSpec spec_;
  JobOverrides overrides_;
  std::shared_ptr<ranks::World> world_;
  cluster::Machine machine_;
  model::Model model_;
  cluster::Cluster cluster_;
  std::shared_ptr<const exec::Backend> backend_;
  cost::Software software_;
  std::size_t fold_beyond_;  // number of devices
  strategy::Request request_;
  std::shared_ptr<const JobData> data_;
};

/// The peak rate of a job's devices together, in its precision, by the data sheets of clusters/; nullopt if one of them has no
/// data sheet there, as the cores of this machine.
std::optional<double> peak_flops(const Job& job);

}  // namespace baton::training
