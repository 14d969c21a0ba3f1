#pragma once

#include <string>

#include "baton/lab/json.h"
#include "baton/lab/training.h"

/// What a run came to, as `train --json` prints it and experiments keep it: a key means the same in both (docs/measuring.md).
namespace baton::lab {

/// Fields to stand among others. `time_per_step_ns` (median), its interval `time_low_ns` to `time_high_ns`, `mean_ns`, `std_ns`,
/// `p5_ns`, `p95_ns`, `min_ns`, `max_ns`, and `samples_per_s`.
Json times_json(const Training& run);
/// `transfers`, `transfers_forward`, `sent_bytes` and `flops` of a step, over all devices.
Json totals_json(const Training& run);
/// `emulated`, `underflows`, `overflows`, `skipped_steps` and `final_scale`.
Json scale_json(const Training& run);

/// `device_list`: for each device of the plan shares of the step, memory and bytes.
Json devices_json(const Training& run);
/// `arrivals`: how devices came to collectives.
Json arrivals_json(const Training& run);
/// `gpus`: what their drivers said.
Json gpus_json(const Training& run);
/// `critical_path`: shares of the step, by kind.
Json path_json(const Training& run);

/// The traced step of median length of the last run, for drawing; null where none was traced.
Json timeline_json(const Training& run, const std::string& label);

/// All there is to say about it. `command` is what reproduces it.
Json result_json(const Training& run, const std::string& command);

}  // namespace baton::lab
