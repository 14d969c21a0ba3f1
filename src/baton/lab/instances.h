#pragma once

#include <vector>

#include "baton/findings/difference.h"
#include "baton/lab/json.h"

/// A point is measured in several fresh instances; this combines their records.
namespace baton::lab {

/// The number of instances in which a point is measured. Below the least nothing can be said about noise.
inline constexpr std::size_t usual_instances = 5;
inline constexpr std::size_t least_instances = 4;

/// The limits within which the points of a precise run are measured.
inline constexpr double precise_difference = 0.03;
inline constexpr std::size_t least_precise_instances = 10;
inline constexpr std::size_t most_precise_instances = 300;
/// True if points that took turns, with these times by point and round, tell a difference of 3 % between any two of them from none,
/// in nine of ten cases; of one point alone, to another of the same scatter. Called after every fifth round only: stopping as soon
/// as the scatter happens to look small would underestimate it.
bool precise_enough(const std::vector<std::vector<double>>& times_by_point);

/// One record out of those of the instances, in the order in which they were measured. Times are those of the instance in the
/// middle, how step times scatter (`mean_ns`, `std_ns`, percentiles) is over the steps of all; losses, roundings and what else
/// belongs to the values are those of the first. It says `instances`, `instance_times_ns`, `time_low_ns` and `time_high_ns` (the 95
/// % interval of the time over instances, `interval_level`; no interval with fewer than two) and `smallest_difference`: the
/// smallest one to another point of the same scatter that is found in nine of ten cases.
Record merge_instances(const std::vector<Record>& records);

/// The times of the instances of a row; none if it does not say.
std::vector<double> instance_times(const Record& row);

/// The relative standard deviation of what all points of one batch had in common from one round to the next, by the times of their
/// instances (by point, then by round): the drift of the machine.
double drift_of(const std::vector<std::vector<double>>& times_by_point);

}  // namespace baton::lab
