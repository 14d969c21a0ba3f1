#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/lab/experiment.h"
#include "baton/lab/train_measurement.h"

/// The common part of the experiments that spread the blocks of a stack over devices: split, depth, all-devices, transfers,
/// four-way-split.
namespace baton::lab {

/// Also measures which block went where, and the bytes that its transfers carry forward. `timeline` is the title of one.
std::unique_ptr<Measurement> open_split(const model::ModelName& model, std::int64_t devices, const Settings& settings,
                                        TrainMeasurement::Options options, job::JobSpec spec = {});
inline std::unique_ptr<Measurement> open_split(const model::ModelName& model, std::int64_t devices, const Settings& settings,
                                               std::string timeline) {
  return open_split(model, devices, settings, TrainMeasurement::Options{.timeline = std::move(timeline)});
}

/// The stack of a point as a model.
model::ModelName stack(const Point& point);
Axis dim_axis();

/// "device 0: blocks 0,1; device 1: blocks 2".
std::string placement_text(const Record& row);
void add_placement(std::vector<Record>& rows);
/// Details of an experiment: whether devices shared cores, if they did.
std::vector<std::string> only_the_note(const std::vector<Record>& rows);

std::vector<std::int64_t> blocks_each(const Record& row);
/// This many are listed one by one.
constexpr std::size_t few = 5;
/// "3 and 3"; of many "1 to 2 each".
std::string counts_text(const Record& row);

/// The time in which the devices of a row compute, together, as a share of the step.
double together(const Record& row);
/// The share of the step in which any device computes.
double some_compute(const Record& row);
/// The share that is computed while another device computes, and the share in which none computes: together() − several_compute() +
/// none_computes() is the step.
double several_compute(const Record& row);
double none_computes(const Record& row);
/// The time in which at least one device computes.
double computing_time(const Record& row);
/// Less is printed as nothing.
constexpr double shown = 0.0005;
/// Up to so much devices work nearly one after the other.
constexpr double little = 0.2;

/// The work that several devices can compute at the same time in a split without micro-batches.
std::string what_overlaps(bool shared);
/// The causes that can make a split faster that puts no forward or backward side by side. A simulator knows no caches.
std::string what_wins(const Record& row);

}  // namespace baton::lab
