#pragma once

#include "baton/lab/experiment.h"
#include "baton/lab/runner.h"
#include "baton/training/job.h"

namespace baton::predict {

/// An experiment that simulates each job on this machine and then measures it. The axes are fields of a job; `shared` is what
/// all have in common. A record has `time_per_step_ns` (measured), `simulated_ns` and `error` = simulated / measured − 1. Its
/// findings say how large the errors are, and, of the pairs of points that differ only in strategy and by more than the noise, how
/// many were simulated in the order in which they were measured.
lab::Experiment prediction(const job::JobSpec& shared, const lab::AxisValues& axes);

}  // namespace baton::predict
