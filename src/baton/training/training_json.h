#pragma once

#include <string>

#include "baton/job/record.h"
#include "baton/training/training.h"

/// The result of a run, as `train --json` prints it and experiments keep it: a key means the same in both (docs/measuring.md).
namespace baton::training {

/// Samples per second at the median step; 0 if no step was timed.
double samples_per_s(const Training& run);

/// The measured figures: `time_per_step_ns` (median), its interval over the steps `time_low_ns` to `time_high_ns`, which
/// holds with `interval_level`, of this many `instances` (one), `mean_ns`, `std_ns`, `p5_ns`, `p95_ns`, `min_ns`, `max_ns`
/// and `samples_per_s` of the `steps_timed` after `warmup`; `transfers`, `transfers_forward`, `sent_bytes` and `flops` of a
/// step, over all devices; `emulated`, `emulated_products` (which kinds of products in 16 bits, if any are), `arithmetic`
/// (the unit that computes in this type: amx, portable, emulation; left out if it does not affect bits), `underflows`,
/// `overflows`, `skipped_steps` and `final_scale`; `device_list` (for each device of the plan shares of the step, memory
/// and bytes), `arrivals` (when devices arrived at collectives), `gpus` (what their drivers said) and `critical_path`
/// (shares of the step, by kind); `global_batch`, `losses`, `origin` and `oversubscribed`.
job::Record measured_record(const Training& run);

/// The traced step of median length of the last run, for drawing; null if none was traced.
job::Json timeline_json(const Training& run, const std::string& label);

/// The measured record with everything else: the settings, every step, and the machine. `command` is the command that reproduces
/// it. `eval_step`, `eval_loss`, `eval_accuracy` and `eval_perplexity` have one entry per evaluation, null if there is no such
/// number; with --data `data`, `data_samples` and `steps_per_epoch` say what it was, `data_wait_ns` how long devices waited for it.
job::Json result_json(const Training& run, const std::string& command);

}  // namespace baton::training
