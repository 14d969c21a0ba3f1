#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/lab/experiment.h"

namespace baton::lab {

/// The most points of a sweep.
constexpr std::int64_t most_points = 10'000;

/// A user's own experiment: axes, every combination of whose values is measured. A spec (spec.h) and a function in Python describe
/// one.
struct Sweep {
  std::string id;
  std::string title;
  std::string question;    // empty: how the step time depends on the axes
  std::vector<Axis> axes;  // at least one, each with the same values in both presets
  /// The values of some axes in the row that the others' speedup is over; rows are compared that agree in the other axes. Empty:
  /// the first row.
  Point baseline = {};
  std::function<std::unique_ptr<Measurement>(const Point& point, const Settings& settings)> open;
};

/// The experiment, with the table, the plot and the findings that any sweep over trainings has.
Experiment to_experiment(Sweep sweep);

}  // namespace baton::lab
