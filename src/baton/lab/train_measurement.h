#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "baton/lab/experiment.h"
#include "baton/lab/part_slowdown.h"
#include "baton/training/training.h"

namespace baton::lab {

/// The measurement of a training job: what most experiments are made of.
class TrainMeasurement : public Measurement {
 public:
  struct Options {
    std::int64_t warmup = 5;        // steps at most; at least one if they would take half of the time
    std::int64_t least_steps = 10;  // timed in the first instance, whatever the time limit; two in the others
    std::string timeline;           // label of the timeline to keep; empty: none
    training::Training::Planner planner = {};
    training::JobOverrides overrides = {};
  };

  TrainMeasurement(const job::JobSpec& spec, const Settings& settings, Options options);

  void round(Nanoseconds time) override;
  /// `training::training_record` and `training::plan_record`, and the timeline if it is kept. On parts of a GPU `beside` says how
  /// they slow each other down (part_slowdown.h).
  Record record() const override;

 protected:
  const training::Training& training() const { return *training_; }
  /// Trains this many more steps, of which the first `warmup` are not counted.
  void run(std::int64_t steps, std::int64_t warmup) { training_->run(steps, warmup); }

 private:
  std::unique_ptr<training::Training> training_;
  Options options_;
  bool first_instance_;
  std::optional<PartSlowdown> part_slowdown_;
};

/// An axis whose values are those of a field of a job; a usage error if there is no such field.
Axis axis_of_field(std::string_view name, const std::vector<job::FieldValue>& values);
/// Sets the field of a job that goes by the name of an axis to the value that the point has there.
void take(job::JobSpec& spec, const Point& point, const std::string& axis);
/// The specification that all points share, with the fields that this one sets.
job::JobSpec spec_at(const job::JobSpec& shared, const Point& point);

inline std::unique_ptr<Measurement> measure_training(const job::JobSpec& spec, const Settings& settings,
                                                     TrainMeasurement::Options options = {}) {
  return std::make_unique<TrainMeasurement>(spec, settings, std::move(options));
}

}  // namespace baton::lab
