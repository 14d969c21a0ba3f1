#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/checkpoint/checkpoint.h"
#include "baton/training/evaluation.h"
#include "baton/training/job.h"

namespace baton::training {

struct Drawing {
  double temperature = 1;  // scores are divided by it; 0: the highest is taken
  std::int64_t top_k = 0;  // this many of the highest are drawn from; 0: all
  std::uint64_t seed = 0;
};

/// The token that is drawn from scores as the one at a position of a text: a function of its arguments alone. Of equal scores the
/// first counts as the highest.
std::int32_t draw_token(std::span<const float> scores, const Drawing& drawing, std::int64_t position);

/// A usage error if the model does not give scores of tokens for each position of tokens that it reads.
void require_token_model(const model::Model& model);
/// The number of tokens that it reads at once.
std::int64_t context_of(const model::Model& model);

/// Continues texts by a model, one token at a time: for each, the forward runs over the whole window of the last tokens, so a token
/// takes as long as a window. Windows are no longer than texts become.
class Sampler {
 public:
  /// The specification names the model, with all its positions, and the devices. Texts will have at most `longest` tokens. A usage
  /// error says why it cannot be run, or what is wrong with the weights.
  Sampler(JobSpec spec, std::shared_ptr<const checkpoint::TensorReader> weights, std::int64_t longest,
          const cluster::Machine& machine);

  ~Sampler();

  const model::Model& model() const { return job_->model(); }
  std::int64_t window() const { return window_; }
  /// For each token of the vocabulary its score as the next one.
  std::vector<float> next_scores(std::span<const std::int32_t> tokens);

 private:
  class Window;

  std::int64_t window_;
  std::unique_ptr<Job> job_;
  std::shared_ptr<Window> feed_;
  std::unique_ptr<Forward> forward_;
};

}  // namespace baton::training
