#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/lab/experiment.h"

/// The conditions of a measurement: everything that the numbers depend on, except its point. A record belongs to one set of
/// conditions; a run continues another only if both have the same.
namespace baton::lab {

/// The conditions that all experiments of a run share: the program, the machine or the cluster with the contents of its
/// file, what-if, devices, preset, time limit and precision.
Json run_conditions(const Settings& settings);
/// That as `run`, and as `own` what is the experiment's alone: the job of a spec that a user wrote, the parts that GPUs are cut
/// into, and the contents of files that points name.
Json experiment_conditions(const Settings& settings, const std::vector<Point>& points, const std::optional<std::string>& toml);

/// The name by which records refer to their conditions; empty if there are none, as in files of version 0.1.0.
std::string conditions_name(const Json& conditions);

/// The conditions that differ between two of `run`, or of `own`, as "cluster (pcie-5, now dgx-a100)".
std::vector<std::string> differences(const Json& before, const Json& now);

}  // namespace baton::lab
