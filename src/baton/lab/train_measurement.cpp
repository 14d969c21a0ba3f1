#include "baton/lab/train_measurement.h"

#include <algorithm>

#include "baton/lab/crowding.h"
#include "baton/lab/rows.h"
#include "baton/lab/training_json.h"

namespace baton::lab {

namespace {

/// For each transfer and collective of the plan: how large it is, and how long it took from when all had come (the median
/// over the traced steps of the last run).
Json messages(const Training& run) {
  const plan::Plan& plan = run.plan();
  Json list = Json::array();
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    if (members.empty()) {
      continue;
    }
    const plan::Task& first = plan[members[0]];
    std::vector<Nanoseconds> times;
    for (const trace::StepTrace& step : run.trace().steps) {
      times.push_back(trace::ended_at(plan, step, members[0]) - trace::met_at(plan, step, members[0]));
    }
    list.push_back({{"kind", plan::verb(first)},
                    {"bytes", plan::bytes_of(plan, plan::payload(first)).count},
                    {"time_ns", trace::spread(times).median.count}});
  }
  return list;
}

/// Where the laboratory simulates, so does each of its jobs.
JobWords on_cluster(JobWords words, const Settings& settings) {
  if (!settings.cluster.empty()) {
    words.cluster = settings.cluster;
    words.what_if = settings.what_if;
  }
  return words;
}

/// By block: the gradients of a step that were not zero after rounding. Empty where nothing is rounded.
Json gradients_left(const Training& run) {
  std::vector<double> left(run.roundings().empty() ? 0 : run.job().model().blocks().size(), 0);
  for (const exec::RoundingTally& tally : run.roundings()) {
    if (tally.role == plan::Role::gradient && tally.block >= 0) {
      left[static_cast<std::size_t>(tally.block)] += static_cast<double>(tally.rounding.values - tally.rounding.underflows) /
                                                     static_cast<double>(run.losses().size());
    }
  }
  return left;
}

}  // namespace

TrainMeasurement::TrainMeasurement(const JobWords& words, const Settings& settings, Options options)
    : training_(std::make_unique<Training>(on_cluster(words, settings), settings.machine, Calibration::Progress{}, nullptr,
                                           options.planner)),
      options_(std::move(options)) {
  if (!training_->simulated()) {
    const Job& job = training_->job();
    crowding_ = crowding(job.cluster(), job.backend(), job.request().step.precision);
  }
}

void TrainMeasurement::round(Nanoseconds time) {
  if (training_->simulated()) {
    if (training_->timed().empty()) {
      training_->run(1, 0);
    }
    return;
  }
  const bool first = training_->timed().empty();
  if (first) {
    training_->run(options_.warmup + 2, options_.warmup);
    for (const Nanoseconds step : training_->step_times()) {
      time -= step;
    }
  }
  const Nanoseconds step = std::max(Nanoseconds(1), trace::spread(training_->timed()).median);
  const std::int64_t wanted = first ? options_.least_steps - static_cast<std::int64_t>(training_->timed().size()) : 1;
  const std::int64_t steps = std::clamp<std::int64_t>(time.count / step.count, std::max<std::int64_t>(wanted, 0), 5000);
  if (steps > 0) {
    // The first step of a run finds the threads asleep; it is not counted.
    training_->run(steps + 1, 1);
  }
}

bool TrainMeasurement::stable(double uncertainty) const {
  return training_->simulated() || (static_cast<std::int64_t>(training_->timed().size()) >= options_.least_steps &&
                                    trace::median_uncertainty(training_->timed()) < uncertainty);
}

Bytes TrainMeasurement::memory() const {
  Bytes sum;
  if (training_->simulated()) {
    return sum;
  }
  for (const Bytes peak : training_->peak()) {
    sum += peak;
  }
  return sum;
}

Json TrainMeasurement::record() const {
  const Training& run = *training_;
  Json record = measured_json(run);
  const trace::DeviceTime mean = run.mean_time();
  const std::vector<Bytes> buffers = run.buffer_bytes();
  const Json parts{{"compute_ns", mean.busy.count},
                   {"communication_ns", mean.communication.count},
                   {"exposed_ns", mean.exposed.count},
                   {"waiting_ns", mean.waiting.count},
                   {"delayed_ns", mean.delayed.count},
                   {"rest_ns", mean.rest().count},
                   {"peak_bytes", std::max_element(run.peak().begin(), run.peak().end())->count},
                   {"buffer_bytes", std::max_element(buffers.begin(), buffers.end())->count}};
  record.update(parts);
  record.update(Json{{"messages", messages(run)}, {"gradients_left", gradients_left(run)}});
  if (crowding_) {
    record["beside"] = to_json(*crowding_);
  }
  if (!options_.timeline.empty()) {
    record["timeline"] = timeline_json(run, options_.timeline);
  }
  return record;
}

Axis axis_of_word(std::string_view name, const std::vector<Json>& values) {
  JobWords probe;
  set_word(probe, name, "");  // throws where there is no such word
  return {axis_name(name), "", values, values};
}

JobWords words_at(const JobWords& shared, const Point& point) {
  JobWords words = shared;
  for (const auto& [axis, value] : point.items()) {
    set_word(words, axis, word_of(value));
  }
  return words;
}

}  // namespace baton::lab
