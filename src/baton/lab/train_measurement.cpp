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

namespace baton::lab {

namespace {

constexpr std::int64_t steps_at_most = 5000;  // timed in one instance
constexpr std::size_t losses_kept = 64;       // of the first steps

/// The time for which a member's device computed within a stretch of the step, the mean over the members.
Nanoseconds computed_between(const plan::Plan& plan, const trace::StepTrace& step, std::span<const TaskId> members,
                             Nanoseconds from, Nanoseconds to) {
  Nanoseconds sum;
  for (const TaskId member : members) {
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      if (plan.tasks()[t].device == plan[member].device && plan.tasks()[t].lane == plan::Lane::compute) {
        sum += std::max(Nanoseconds(0), std::min(to, step.events[t].end) - std::max(from, step.events[t].start));
      }
    }
  }
  return Nanoseconds(sum.count / static_cast<std::int64_t>(members.size()));
}

/// For each transfer and collective of the plan: its size, its time from the arrival of all members (the median over the traced
/// steps of the last run), and the share of that time in which its devices computed.
std::vector<Record> messages(const training::Training& run) {
  const plan::Plan& plan = run.plan();
  std::vector<Record> list;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    if (members.empty()) {
      continue;
    }
    const plan::Task& first = plan[members[0]];
    std::vector<Nanoseconds> times;
    Nanoseconds taken;
    Nanoseconds computing;
    for (const trace::StepTrace& step : run.trace().steps) {
      const Nanoseconds from = trace::met_at(plan, step, members[0]);
      const Nanoseconds to = trace::ended_at(plan, step, members[0]);
      times.push_back(to - from);
      taken += to - from;
      computing += computed_between(plan, step, members, from, to);
    }
    list.push_back({key::kind(std::string(plan::verb(first))), key::bytes(plan::bytes_of(plan, plan::payload(first))),
                    key::time_ns(trace::spread(times).median), key::overlapped(trace::share(computing, taken))});
  }
  return list;
}

/// The first losses, the last one, their number and a checksum of the bits of all: every step's loss would take most of a record.
Record kept_losses(const std::vector<double>& losses) {
  Hash bits;
  for (const double loss : losses) {
    bits.add(std::bit_cast<std::uint64_t>(loss));
  }
  const auto kept = static_cast<std::ptrdiff_t>(std::min(losses.size(), losses_kept));
  return {key::losses({losses.begin(), losses.begin() + kept}),
          key::loss_final(losses.empty() ? std::nullopt : std::optional(losses.back())),
          key::loss_steps(static_cast<std::int64_t>(losses.size())), key::losses_checksum(fmt::format("{:016x}", bits.value()))};
}

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

/// "has 1 core", "is a GPU RTX-3090", "is 1/4 of GPU 0".
std::string device_words(const training::Job& job) {
  const cluster::Device& device = job.cluster().devices()[0];
  if (job.imagined()) {
    return "is a simulated " + device.product;
  }
  if (device.gpu) {
    return device.gpu->of > 1 ? fmt::format("is 1/{} of a GPU", device.gpu->of) : "is a GPU";
  }
  return fmt::format("has {} core{}{}", device.cores.size(), device.cores.size() == 1 ? "" : "s",
                     job.simulated() ? " (simulated)" : "");
}

/// The trained job, and the kind of its devices.
Record trained(const training::Training& run) {
  const training::Job& job = run.job();
  op::Optimizer optimizer = job.request().step.optimizer;
  double rate = 0;
  op::attributes(optimizer,
                 [&](std::string_view name, const auto& value) { rate = name == "rate" ? static_cast<double>(value) : rate; });
  return {key::model(job.model().name()),
          key::parameters(job.model().parameter_count()),
          key::parameter_bytes(job.model().parameter_count() * 4),
          key::batch(job.request().step.global_batch),
          key::optimizer(fmt::format("{} with learning rate {:.6g}", job.spec().optimizer, rate)),
          key::loss(std::string(strategy::to_text(job.request().step.loss))),
          key::precision(std::string(strategy::to_text(job.request().step.precision))),
          key::seed(job.seed()),
          key::strategy(job.request().strategy),
          key::device(device_words(job))};
}

/// By block: the gradients of a step that were not zero after rounding. Empty if nothing is rounded.
std::vector<double> gradients_left(const training::Training& run) {
  std::vector<double> left(run.roundings().empty() ? 0 : run.job().model().blocks().size(), 0);
  for (const exec::RoundingTally& tally : run.roundings()) {
    if (tally.role == plan::Role::gradient && tally.block >= 0) {
      left[static_cast<std::size_t>(tally.block)] += static_cast<double>(tally.rounding.values - tally.rounding.underflows) /
                                                     static_cast<double>(run.losses().size());
    }
  }
  return left;
}

/// The readings of GPU 0 and of the other GPUs, as a table has them; empty without a GPU.
Record gpu_summary(const training::Training& run) {
  Record summary;
  std::vector<double> others;  // utilizations; one of 0 is of a window of the driver before the kernels that ran
  double watts = 0;
  std::int64_t memory = 0;
  std::int64_t clock = 0;
  std::size_t seen = 0;
  for (const exec::GpuReading& gpu : run.gpus()) {
    if (gpu.samples == 0) {
      continue;
    }
    if (gpu.utilization > 0 && seen == 0) {
      summary.set(key::gpu_utilization_0, gpu.utilization);
    } else if (gpu.utilization > 0) {
      others.push_back(gpu.utilization);
    }
    watts += gpu.watts;
    memory = std::max(memory, gpu.memory_used.count);
    clock = seen == 0 ? gpu.clock_mhz : std::min<std::int64_t>(clock, gpu.clock_mhz);
    ++seen;
  }
  if (seen > 0) {
    summary.update({key::gpu_memory_bytes(Bytes(memory)), key::gpu_watts(watts), key::gpu_clock_mhz(clock)});
  }
  if (!others.empty()) {
    summary.set(key::gpu_utilization_others,
                std::accumulate(others.begin(), others.end(), 0.0) / static_cast<double>(others.size()));
  }
  return summary;
}

}  // namespace

TrainMeasurement::TrainMeasurement(const job::JobSpec& spec, const Settings& settings, Options options)
    : training_(std::make_unique<training::Training>(as_set(spec, settings), settings.machine, measure::Calibration::Progress{},
                                                     nullptr, options.planner)),
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

Record training_record(const training::Training& run) {
  Record record = training::measured_record(run);
  record.update(kept_losses(run.losses()));
  const trace::DeviceTime mean = run.mean_time();
  const std::vector<Bytes> buffers = run.buffer_bytes();
  record.update({key::compute_ns(mean.busy), key::communication_ns(mean.communication), key::exposed_ns(mean.exposed),
                 key::waiting_ns(mean.waiting), key::delayed_ns(mean.delayed), key::rest_ns(mean.rest()),
                 key::peak_bytes(*std::max_element(run.peak().begin(), run.peak().end())),
                 key::buffer_bytes(*std::max_element(buffers.begin(), buffers.end()))});
  record.update({key::trained(trained(run)), key::messages(messages(run)), key::gradients_left(gradients_left(run))});
  record.update(gpu_summary(run));
  return record;
}

Record TrainMeasurement::record() const {
  Record record = training_record(*training_);
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
