#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/lab/runner.h"
#include "baton/predict/published.h"

/// Predictions compared with what others measured.
namespace baton::predict {

/// A published case and its simulation.
struct ValidatedPoint {
  PublishedCase published;
  double seconds = 0;  // simulated; 0 if it could not be simulated: then the case has a reason
  job::JobSpec spec;   // the job of a training step that was simulated, the fastest if the table leaves it open
  double memory = 0;   // GiB of the fullest device, if it is published and the step is simulated

  bool simulated() const { return published.reason.empty(); }
  /// Simulated over measured, less one.
  double error() const { return seconds / published.seconds - 1; }
};

/// The errors of the points of one source, by their absolute values.
struct SourceErrors {
  std::string source;
  std::size_t points = 0;
  std::size_t refused = 0;
  double mean = 0;
  double median = 0;
  double within_ten = 0;  // the share of points that are at most 10 % off
  double bias = 0;        // the mean with its sign
  const ValidatedPoint* worst = nullptr;
};
/// The errors of each source, in the order of the points. With `fitted` only the rows by which constants may have been chosen,
/// otherwise only the others. Sources of fewer than 20 rows have no fitted rows.
std::vector<SourceErrors> errors_by_source(const std::vector<ValidatedPoint>& points, bool fitted);

/// Seconds of a step of the job. For a step of many micro-batches, two steps with fewer are simulated: once the pipeline is full,
/// each further micro-batch adds the same time.
double simulated_step(const job::JobSpec& spec, const cluster::Machine& machine);
/// Bytes of the fullest device: what the job's program would report, if its profile says what it reserves, otherwise what the
/// plan lays out.
Bytes simulated_memory(const job::JobSpec& spec, const cluster::Machine& machine);
double simulated_time(const PublishedAllReduce& job);
double simulated_time(const PublishedKernel& job);

/// Simulates the case; if it cannot be compiled, the sentence that says why becomes its reason.
ValidatedPoint validated(PublishedCase published, const cluster::Machine& machine);

/// Called after each case; false: stop here.
using ValidationProgress = std::function<bool(std::size_t done, std::size_t total)>;
std::vector<ValidatedPoint> validate(std::vector<PublishedCase> cases, const cluster::Machine& machine,
                                     const ValidationProgress& progress);

/// A line per point: source, line, what, measured_s, simulated_s, error, fitted, reason, job, and the measured and simulated GiB.
std::string to_csv(const std::vector<ValidatedPoint>& points);
/// A line per point, the largest error first: its errors, which row of which table it is, and the command that simulates it; not
/// what was measured.
std::string to_error_list(const std::vector<ValidatedPoint>& points);
/// The points as a result of an experiment, for the page: a table, and simulated against measured times.
lab::Result validation_result(const std::vector<ValidatedPoint>& points, const std::string& command);

}  // namespace baton::predict
