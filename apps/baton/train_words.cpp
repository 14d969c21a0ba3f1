#include "train_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "commands.h"
#include "options.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {

std::vector<exec::Setting> shared_settings(const TrainWords& words) {
  std::vector<exec::Setting> settings{{"--patience", fmt::format("{}", words.patience)},
                                      {"--json", words.json},
                                      {"--trace", words.trace},
                                      {"--report", words.report},
                                      {"--csv", words.csv},
                                      {"--json-lines", words.json_lines},
                                      {"--keep", fmt::format("{}", words.keep.value_or(usual_keep))},
                                      {"--log-every", setting_text(words.log_every)},
                                      {"--steps", setting_text(words.steps)},
                                      {"--warmup", setting_text(words.warmup)},
                                      {"--epochs", setting_text(words.epochs)},
                                      {"--eval-data", words.eval_data},
                                      {"--eval-every", setting_text(words.eval_every)},
                                      {"--keep-best", words.keep_best ? "yes" : "no"},
                                      {"--checkpoint", words.checkpoint.empty() ? "none" : "some"},
                                      {"--every", setting_text(words.every)},
                                      {"--resume", words.resume ? "yes" : "no"},
                                      {"--write-start", words.start.empty() ? "none" : "some"}};
  add_settings(words.job, settings);
  return settings;
}

Length length_of(const TrainWords& words, const training::Job& job) {
  constexpr std::int64_t usual_warmup = 5;
  const std::int64_t batch = job.request().step.global_batch;
  Length length;
  length.epoch = job.data() != nullptr ? job.data()->training()->order().steps_per_epoch() : job.samples() / batch;
  if (words.epochs) {
    if (words.steps) {
      throw usage_error("--epochs and --steps both say how long to train: give one of them");
    }
    if (length.epoch == 0) {
      throw usage_error("--epochs needs data: add --data or --samples, or use --steps");
    }
    const double steps = std::max(0.0, std::ceil(*words.epochs * static_cast<double>(length.epoch) - 1e-9));
    if (steps < 1 || steps > static_cast<double>(most_steps)) {
      throw usage_error("--epochs {} are {:.0f} steps of {} samples each: train for 1 to {} steps", *words.epochs, steps, batch,
                        most_steps);
    }
    length.steps = static_cast<std::int64_t>(steps);
  } else if (!words.steps && job.data() != nullptr) {
    length.steps = length.epoch;
  } else {
    length.steps = words.steps.value_or(usual_steps);
  }
  const bool shortens = !words.steps || job.data() != nullptr;  // every step on data counts, whether it is timed or not
  length.warmup = words.warmup.value_or(shortens ? std::min(usual_warmup, length.steps - 1) : usual_warmup);
  if (length.steps <= length.warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: give more steps, or a smaller --warmup", length.steps,
                      length.warmup);
  }
  return length;
}

}  // namespace baton::app
