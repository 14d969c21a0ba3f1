#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cluster/machine.h"
#include "baton/exec/backend.h"
#include "baton/model/model.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"

namespace baton::app {

/// The words that describe a training job, as they stand on the command line.
struct JobWords {
  std::string model = "mlp:dim=1024,depth=2";
  std::string strategy = "single";
  std::string devices = "cpu";
  std::string batch = "64";
  std::string loss = "mse";
  std::string optimizer = "sgd";
  std::string lr;
  std::string momentum;
  std::string weight_decay;
  std::string split;
  std::string bucket_mb = "25";
  std::string first_bucket_mb = "1";
  std::string link;
  std::string memory;
  std::string backend = "cpu";
  std::vector<std::string> delays;
};

/// Adds the flags for them to a command.
void add_job_flags(CLI::App& command, JobWords& words);

/// The job that the words describe. Everything is checked here, before anything starts.
class Job {
 public:
  explicit Job(const JobWords& words);

  const cluster::Machine& machine() const { return machine_; }
  const model::Model& model() const { return model_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const exec::Backend& backend() const { return *backend_; }
  const strategy::Request& request() const { return request_; }
  plan::Plan compile() const { return strategy::compile(request_); }
  /// What the plan is checked against.
  plan::Limits limits(const plan::Plan& plan) const;
  /// "4 devices share 2 cores ...", or nothing.
  std::string oversubscription() const;

 private:
  cluster::Machine machine_;
  model::Model model_;
  cluster::Cluster cluster_;
  std::unique_ptr<exec::Backend> backend_;
  strategy::Request request_;
};

/// "cpu:0 (core 0), cpu:1 (core 1)".
std::string describe_cores(const cluster::Device& device);

}  // namespace baton::app
