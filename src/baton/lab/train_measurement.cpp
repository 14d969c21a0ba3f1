#include "baton/lab/train_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "baton/base/clock.h"
#include "baton/base/hash.h"
#include "baton/job/step_json.h"
#include "baton/lab/part_slowdown.h"
#include "baton/lab/rows.h"
#include "baton/training/training_json.h"
#include "baton/training/training_record.h"

namespace baton::lab {

namespace {

constexpr std::int64_t steps_at_most = 5000;  // timed in one instance

/// A job as the settings want it: with the fields that they set, and simulated if the laboratory simulates.
job::JobSpec as_set(job::JobSpec spec, const Settings& settings) {
  for (const auto& [name, value] : settings.fields) {
    job::set_field(spec, name, value);
  }
  if (!settings.cluster.empty()) {
    spec.cluster = settings.cluster;
    spec.what_if = settings.what_if;
  }
  return spec;
}

}  // namespace

TrainMeasurement::TrainMeasurement(const job::JobSpec& spec, const Settings& settings, Options options)
    : training_(std::make_unique<training::Training>(as_set(spec, settings), settings.machine, measure::Calibration::Progress{},
                                                     nullptr, options.planner, options.overrides)),
      options_(std::move(options)),
      first_instance_(settings.instance == 0) {
  if (!training_->simulated()) {
    const training::Job& job = training_->job();
    if (static_cast<std::int64_t>(job.cluster().size()) >= settings.most_devices) {  // there parts slow each other down most
      part_slowdown_ = part_slowdown(training_->plan(), job);
    }
  }
}

void TrainMeasurement::round(Nanoseconds time) {
  if (training_->simulated()) {
    training_->run(1, 0);
    return;
  }
  const Nanoseconds end = now() + time;
  // The first instance runs as many steps as findings on losses and warm-up need. The others spend at most half of their time on
  // warm-up.
  training_->run(1, 1);
  const Nanoseconds first_step = std::max(Nanoseconds(1), training_->step_times().back());
  const std::int64_t more = std::max<std::int64_t>(0, options_.warmup - 1);
  const std::int64_t warmup = first_instance_ ? more : std::min(more, time.count / 2 / first_step.count);
  if (warmup > 0) {
    training_->run(warmup, warmup);
  }
  const Nanoseconds step = std::max(Nanoseconds(1),
                                    *std::min_element(training_->step_times().begin(), training_->step_times().end()));
  const std::int64_t wanted = first_instance_ ? options_.least_steps : std::min<std::int64_t>(2, options_.least_steps);
  const std::int64_t steps = std::clamp<std::int64_t>((end - now()).count / step.count, wanted, steps_at_most);
  // The first step of a run finds the threads asleep; it is not counted.
  training_->run(steps + 1, 1);
}

Record TrainMeasurement::record() const {
  Record record = training::training_record(*training_);
  record.update(training::plan_record(*training_));
  if (part_slowdown_) {
    record.set(key::beside, to_record(*part_slowdown_));
  }
  if (!options_.timeline.empty()) {
    record.set(key::timeline, training::timeline_json(*training_, options_.timeline));
  }
  return record;
}

Axis axis_of_field(std::string_view name, const std::vector<job::FieldValue>& values) {
  if (training::find_field(name) == nullptr) {
    job::JobSpec probe;
    job::set_field(probe, name, "");  // throws, with the names that there are
  }
  return {axis_name(name), "", values, values};
}

void take(job::JobSpec& spec, const Point& point, const std::string& axis) { job::set_field(spec, axis, point[axis]); }

job::JobSpec spec_at(const job::JobSpec& shared, const Point& point) {
  job::JobSpec spec = shared;
  for (const auto& [axis, value] : point) {
    job::set_field(spec, axis, value);
  }
  return spec;
}

}  // namespace baton::lab
