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
#include "baton/exec/ranks/world.h"
#include "baton/exec/run.h"
#include "baton/lab/job_data.h"
#include "baton/lab/own.h"
#include "baton/lab/what_if.h"
#include "baton/model/model.h"
#include "baton/strategy/fold.h"
#include "baton/strategy/strategy.h"

namespace baton::lab {

/// A training job as text: from the command line, a spec file or an experiment.
struct JobWords {
  std::string model = "mlp:dim=1024,depth=2";
  std::string strategy;  // empty: single, or product if a layout is given
  std::string devices = "cpu";
  std::string batch = "64";
  std::string loss;  // empty: cross-entropy if the model gives scores, mse otherwise
  std::string label_smoothing = "0";
  std::string optimizer = "sgd";
  std::string lr;
  std::string momentum;
  std::string weight_decay;
  std::string decay = "all";
  std::string lr_schedule;
  std::string clip;
  std::string dp;
  std::string pp;
  std::string tp;
  std::string sp = "off";
  std::string zero;
  std::string schedule;  // a name, or the path of a schedule file
  std::string chunks;
  std::string precision = "fp32";
  std::string gradients = "same";
  std::string loss_scale;  // empty: dynamic for fp16, none otherwise
  std::string loss_scale_growth = "2000";
  std::string split;
  std::string balance = "even";
  std::string recompute = "none";
  std::string micro_batches;
  std::string bucket_mb = "25";
  std::string first_bucket_mb = "1";
  std::string link;
  std::string memory;
  std::string backend;  // empty: chosen by the devices
  std::string delay;    // separated by semicolons
  std::string seed = "0";
  std::string samples = "0";
  std::string data;  // empty: random numbers
  std::string tokenizer;
  std::string token_type;
  std::string normalize;
  std::string augment = "none";
  std::string cluster;   // empty: run on this machine, not simulated
  std::string software;  // of the simulated machine; empty: Baton's own
  std::string what_if;
  std::string fold = "auto";

  bool operator==(const JobWords&) const = default;
};

/// One option of a job.
struct JobField {
  std::string name;  // the flag without dashes
  std::string JobWords::*word;
  std::string type;  // what help shows for the value: N, NAME, SIZE, ...
  std::string help;
  std::vector<std::string> also = {};                          // other spellings: a letter, or a name known from other programs
  std::function<std::vector<std::string>()> values = nullptr;  // the allowed names, if the value is one of a few names
  bool repeatable = false;                                     // may be given several times; the values are joined by semicolons
};
/// All options, in the order of the help.
const std::vector<JobField>& job_fields();

/// The name of a cluster that means this machine, and whether a name is that one.
constexpr std::string_view this_machine = "machine";
bool is_this_machine(std::string_view cluster);

/// Whether the word for a schedule is the path of a file, not the name of a known schedule.
bool is_schedule_file(const std::string& word);

/// The field with this spelling, in which dashes and underscores are the same; nullptr if there is none.
const JobField* find_field(std::string_view name);
/// Sets a field by any of its spellings; a usage error lists the names.
void set_word(JobWords& words, std::string_view name, std::string value);

/// The words with those that the software profile they name has for the ones that were left as they are usually.
JobWords with_software(JobWords words);

/// The job that the words describe. The constructor checks everything, before anything starts.
class Job {
 public:
  /// With several ranks every rank makes the job, and its devices are those of all ranks.
  Job(const JobWords& words, cluster::Machine machine, exec::World* world = nullptr, Own own = {});

  Job(const Job&) = delete;  // the request refers to the model and the cluster
  Job& operator=(const Job&) = delete;

  const JobWords& words() const { return words_; }
  const cluster::Machine& machine() const { return machine_; }
  const model::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const exec::Backend& backend() const { return *backend_; }
  /// The ranks that run it together; nullptr if this process runs it alone.
  exec::World* world() const { return world_; }
  const strategy::Request& request() const { return request_; }
  std::uint64_t seed() const { return seed_; }
  std::int64_t samples() const { return samples_; }
  /// What it is trained on; null where that is random numbers.
  const JobData* data() const { return data_.get(); }
  exec::DataOptions data_options() const {
    return {.seed = seed_, .samples = samples_, .feed = data_ ? &data_->training() : nullptr};
  }
  /// What the program that made it gave itself.
  const Own& own() const { return own_; }
  /// The strategy: the one that the words name, or the program's own.
  const strategy::Strategy& strategy() const;
  plan::Plan compile() const { return strategy::compile(request_, strategy()); }
  /// Whether the job is simulated,
  bool simulated() const { return !words_.cluster.empty(); }
  /// and whether the simulated machine is another one than this.
  bool imagined() const;
  /// The program that is simulated on it.
  const cost::Software& software() const { return software_; }
  /// Changes to the simulated machine.
  const WhatIf& what_if() const { return what_if_; }
  /// The plan of one replica that stands for all; nullopt if the replicas differ or folding is off.
  std::optional<strategy::Folded> fold() const;
  /// The limits that its plan is checked against: memory, and for a run on this machine the kernels.
  plan::Limits limits(const plan::Plan& plan) const;
  /// "4 devices share 2 cores ..."; empty if they do not share.
  std::string oversubscription() const;

 private:
  struct Ready {};
  Job(Ready ready, const JobWords& words, cluster::Machine machine, exec::World* world, Own own);
  void take_schedule();
  void open_data();

  JobWords words_;
  Own own_;
  exec::World* world_;
  cluster::Machine machine_;
  model::Model model_;
  cluster::Cluster cluster_;
  std::unique_ptr<exec::Backend> backend_;
  std::uint64_t seed_;
  std::int64_t samples_;
  WhatIf what_if_;
  cost::Software software_;
  std::size_t fold_beyond_;  // number of devices
  strategy::Request request_;
  std::unique_ptr<JobData> data_;
};

/// What the devices of a job could compute at most per second, in its precision, by the data sheets of clusters/; nothing where
/// those do not know one of them, as the cores of this machine.
std::optional<double> peak_flops(const Job& job);

}  // namespace baton::lab
