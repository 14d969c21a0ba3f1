#include "train_evaluating.h"

#include "baton/base/error.h"
#include "guard.h"

namespace baton::app {

Evaluating::Evaluating(const TrainWords& words, training::Training& run, const Length& length) : run_(run) {
  if (run.job().data() == nullptr) {
    for (const auto& [flag, given] :
         {std::pair("--eval-data", !words.eval_data.empty()), std::pair("--eval-every", words.eval_every.has_value()),
          std::pair("--keep-best", words.keep_best)}) {
      if (given) {
        throw usage_error("{} needs data to train on: give it with --data", flag);
      }
    }
    return;
  }
  feed_ = run.job().data()->evaluation(words.eval_data);
  if (!feed_) {
    if (words.eval_every || words.keep_best) {
      throw usage_error("{} needs data to evaluate on, and {} has no test part: give some data with --eval-data",
                        words.keep_best ? "--keep-best" : "--eval-every", words.job.data);
    }
    return;
  }
  every_ = words.eval_every.value_or(std::max<std::int64_t>(1, length.epoch));
  forward_ = std::make_unique<training::Forward>(run.job(), feed_);
}

std::optional<training::Evaluation> Evaluating::evaluate(const std::function<bool(std::int64_t done, std::int64_t of)>& go_on) {
  guard_plan(forward_->plan(), run_.job(), 0);
  std::optional<training::Evaluation> evaluation = run_.evaluate(*forward_, *feed_, go_on);
  guard_run(run_);
  return evaluation;
}

}  // namespace baton::app
