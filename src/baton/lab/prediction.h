#pragma once

#include <string>
#include <vector>

#include "baton/lab/experiment.h"
#include "baton/lab/runner.h"

namespace baton::lab {

/// An experiment that simulates each job on this machine and then measures it. The axes are words of a job; `shared` is what
/// all have in common. A record has `time_per_step_ns` (measured), `simulated_ns` and `error`, simulated over measured less one.
Experiment prediction(const JobWords& shared, const AxisValues& axes);

/// How good predictions are.
struct Accuracy {
  std::size_t points = 0;
  double median_error = 0;  // of the absolute errors
  double largest_error = 0;
  std::size_t pairs = 0;     // of points that differ in strategy alone, by more than the noise
  std::size_t in_order = 0;  // of them, those that the simulation puts in the same order
};
Accuracy accuracy(const std::vector<Json>& rows);

}  // namespace baton::lab
