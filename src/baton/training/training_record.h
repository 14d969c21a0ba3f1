#pragma once

#include "baton/job/record.h"
#include "baton/training/training.h"

/// The record of a training: `train --json` prints it, with the settings and every step next to it, and the laboratory keeps it. A
/// key means the same in both (docs/measuring.md).
namespace baton::training {

/// Samples per second at the median step; 0 if no step was timed.
double samples_per_s(const Training& run);

/// The readings of the GPUs' drivers.
job::Json gpus_json(const Training& run);

/// - The measured figures: `time_per_step_ns` (median), its interval over the steps `time_low_ns` to `time_high_ns`, which
///   holds with `interval_level`, of this many `instances` (one), `mean_ns`, `std_ns`, `p5_ns`, `p95_ns`, `min_ns`, `max_ns`
///   and `samples_per_s` of the `steps_timed` after `warmup`; `transfers`, `transfers_forward`, `sent_bytes` and `flops` of a
///   step, over all devices; `global_batch`, `origin` and `oversubscribed`.
/// - Where the step went: `compute_ns`, `communication_ns`, `exposed_ns`, `waiting_ns`, `delayed_ns` and `rest_ns`, the mean over
///   devices; `device_list` (for each device of the plan shares of the step, memory and bytes), `arrivals` (when devices arrived
///   at collectives), `critical_path` (shares of the step, by kind); the largest of the devices' `peak_bytes`.
/// - What was trained, and how well: `trained` (the job, and the kind of its devices), the first `losses`, `loss_final` after
///   `loss_steps` and `losses_checksum`.
/// - Numbers in 16 bits: `emulated`, `emulated_products` (which kinds of products in 16 bits, if any are), `arithmetic` (the unit
///   that computes in this type: amx, portable, emulation; left out if it does not affect bits), `underflows`, `overflows`,
///   `skipped_steps`, `final_scale`, and `gradients_left`: by block, gradients per step that were not zero after rounding.
/// - `gpus` (the readings of their drivers), and a summary of these.
job::Record training_record(const Training& run);

/// Numbers that need the whole plan again, and grow with it: the largest of the devices' `buffer_bytes`, and `messages`, one per
/// transfer and collective, with its size, its time from the arrival of all members (the median over the traced steps of the last
/// run), and the share of that time in which its devices computed.
job::Record plan_record(const Training& run);

}  // namespace baton::training
