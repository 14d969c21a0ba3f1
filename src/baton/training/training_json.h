#pragma once

#include <string>

#include "baton/job/record.h"
#include "baton/training/training.h"

/// The result of a run, as `train --json` prints it.
namespace baton::training {

/// The traced step of median length of the last run, for drawing; null if none was traced.
job::Json timeline_json(const Training& run, const std::string& label);

/// The record of the training with everything else: the settings, every step and its loss, and the machine. `command` is the
/// command that reproduces it. `eval_step`, `eval_loss`, `eval_accuracy` and `eval_perplexity` have one entry per evaluation, null
/// if there is no such number; with --data `data`, `data_samples` and `steps_per_epoch` say what it was, `data_wait_ns` how long
/// devices waited for it.
job::Json result_json(const Training& run, const std::string& command);

}  // namespace baton::training
