#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/machine.h"
#include "baton/exec/backend.h"
#include "baton/exec/ranks/world.h"
#include "baton/lab/what_if.h"
#include "baton/model/model.h"
#include "baton/strategy/fold.h"
#include "baton/strategy/strategy.h"

namespace baton::lab {

/// The words that describe a training job: on the command line, in a spec file, in an experiment.
struct JobWords {
  std::string model = "mlp:dim=1024,depth=2";
  std::string strategy;  // empty: single, or product where a layout is given
  std::string devices = "cpu";
  std::string batch = "64";
  std::string loss = "mse";
  std::string optimizer = "sgd";
  std::string lr;
  std::string momentum;
  std::string weight_decay;
  std::string dp;
  std::string pp;
  std::string tp;
  std::string sp = "off";
  std::string zero;
  std::string schedule;  // a name, or a file of a schedule of one's own
  std::string chunks;
  std::string precision = "fp32";
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
  std::string backend;  // empty: the one that runs on the devices
  std::string delay;    // several are parted by semicolons
  std::string seed = "0";
  std::string samples = "0";
  std::string cluster;  // none: this machine, and for real
  std::string what_if;
  std::string fold = "auto";

  bool operator==(const JobWords&) const = default;
};

/// One of them.
struct JobField {
  std::string name;  // the flag without dashes
  std::string JobWords::*word;
  std::string help;
  std::vector<std::string> also = {};  // how it may be spelt as well: a letter, or another name that people bring along
  std::function<std::vector<std::string>()> values = nullptr;  // what it may be, where that is one of a few names
  bool repeatable = false;                                     // several make one word, parted by semicolons
};
/// All of them, in the order in which help shows them.
const std::vector<JobField>& job_fields();

/// The word for a cluster that means the machine this runs on, and whether one is it.
constexpr std::string_view this_machine = "machine";
bool is_this_machine(std::string_view cluster);

/// Whether the word for a schedule names a file and no schedule that Baton knows.
bool is_schedule_file(const std::string& word);

/// The field that has this name among its spellings, with dashes or underscores; none where there is none.
const JobField* find_field(std::string_view name);
/// Sets a field by any of its spellings; a usage error lists the names.
void set_word(JobWords& words, std::string_view name, std::string value);

/// The job that the words describe. Everything is checked here, before anything starts.
class Job {
 public:
  /// Where there are several ranks, the devices are those of all, and all ranks make the job.
  Job(const JobWords& words, cluster::Machine machine, exec::World* world = nullptr);

  Job(const Job&) = delete;  // the request refers to the model and the cluster
  Job& operator=(const Job&) = delete;

  const JobWords& words() const { return words_; }
  const cluster::Machine& machine() const { return machine_; }
  const model::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const exec::Backend& backend() const { return *backend_; }
  /// The ranks that run it together; none: this process alone.
  exec::World* world() const { return world_; }
  const strategy::Request& request() const { return request_; }
  std::uint64_t seed() const { return seed_; }
  std::int64_t samples() const { return samples_; }
  plan::Plan compile() const { return strategy::compile(request_); }
  /// Whether the job runs on a virtual clock,
  bool simulated() const { return !words_.cluster.empty(); }
  /// and whether that of another machine.
  bool imagined() const;
  /// What would be otherwise, where it is simulated.
  const WhatIf& what_if() const { return what_if_; }
  /// One of its replicas for all, where they are alike and its words ask for that; otherwise nothing.
  std::optional<strategy::Folded> fold() const;
  /// What its plan is held against before it runs: kernels only where it runs here.
  plan::Limits limits(const plan::Plan& plan) const;
  /// "4 devices share 2 cores ...", or nothing.
  std::string oversubscription() const;

 private:
  JobWords words_;
  exec::World* world_;
  cluster::Machine machine_;
  model::Model model_;
  cluster::Cluster cluster_;
  std::unique_ptr<exec::Backend> backend_;
  std::uint64_t seed_;
  std::int64_t samples_;
  WhatIf what_if_;
  std::size_t fold_beyond_;  // so many devices
  strategy::Request request_;
};

}  // namespace baton::lab
