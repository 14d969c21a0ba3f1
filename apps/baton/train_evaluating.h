#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "baton/training/training.h"
#include "train_words.h"

namespace baton::app {

/// The evaluation that `train` runs at intervals. All ranks take part.
class Evaluating {
 public:
  Evaluating(const TrainWords& words, training::Training& run, const Length& length);

  /// The number of steps, of `left`, to run before the next evaluation.
  std::int64_t stretch(std::int64_t left, std::int64_t done) const {
    return forward_ ? std::min(left, every_ - done % every_) : left;
  }
  /// True if one is due after this many steps of all.
  bool due(std::int64_t done, std::int64_t steps) const { return forward_ && (done % every_ == 0 || done == steps); }
  std::optional<training::Evaluation> evaluate(const std::function<bool(std::int64_t done, std::int64_t of)>& go_on);

 private:
  training::Training& run_;
  std::shared_ptr<const training::SampleFeed> feed_;
  std::unique_ptr<training::Forward> forward_;
  std::int64_t every_ = 0;
};

}  // namespace baton::app
