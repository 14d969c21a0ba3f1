#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "baton/checkpoint/checkpoint.h"
#include "baton/exec/executor.h"
#include "baton/training/job.h"
#include "baton/training/job_data.h"

namespace baton::training {

/// The result of a model on data.
struct Evaluation {
  std::int64_t step = 0;  // the step of the training at which it was made
  std::int64_t samples = 0;
  double loss = 0;                   // the mean over the samples
  std::optional<double> accuracy;    // the share of samples whose label has the highest score; where each has one label
  std::optional<double> perplexity;  // exp(loss), where labels are tokens
  Nanoseconds time;
};

/// The forward of a job's model, with the job's strategy as far as that splits a forward: `dp` and ZeRO are evaluated as `ddp`,
/// with whole weights on every device. Nothing is dropped out or smoothed, and norms of batches use their running statistics. It
/// has weights of its own. Among several ranks all make one and call the same in the same order.
class Forward {
 public:
  /// Compiles and verifies the plan and takes the memory; a usage error says why it cannot be run. Rows come from the feed, step by
  /// step. The job need not outlive it.
  Forward(const Job& job, std::shared_ptr<const exec::Feed> feed);

  const plan::Plan& plan() const { return plan_; }
  /// Takes the weights of a training, or those of a checkpoint. A usage error if one is missing or of another shape.
  void take_weights(const plan::Plan& plan, const exec::Executor& executor);
  void take_weights(const checkpoint::TensorReader& source);

  /// Runs the next step of the feed, or the one that `seek` says.
  void run();
  void seek(std::int64_t step) { executor_.continue_from(step); }
  /// The output of the last step: for each sample of the batch the model's output, row-major. It is the same on all ranks.
  std::vector<float> outputs() const;
  /// The output of the last step for one position of the first sample alone.
  std::vector<float> scores_at(std::int64_t position) const;
  /// The loss of each sample of the batch: the mean over its positions.
  std::vector<double> losses() const;

 private:
  std::int64_t batch_;
  model::Model model_;  // as it is evaluated
  plan::Plan plan_;
  exec::Executor executor_;
  std::vector<std::byte> room_;  // for one tensor
};

/// The mean loss and the accuracy of a forward over all samples of its feed, each counted once. `go_on` is asked before every
/// batch; nothing if it says no.
std::optional<Evaluation> evaluate(Forward& forward, const Job& job, const SampleFeed& feed,
                                   const std::function<bool(std::int64_t done, std::int64_t of)>& go_on = {});

}  // namespace baton::training
