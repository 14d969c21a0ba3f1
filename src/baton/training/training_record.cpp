#include "baton/training/training_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "baton/base/hash.h"
#include "baton/job/keys.h"
#include "baton/job/step_json.h"

namespace baton::training {

using job::Json;
using job::Record;
namespace key = job::key;

namespace {

constexpr std::size_t losses_kept = 64;  // the first steps

/// By device: when its tasks computed in a step. The tasks of a compute lane run one at a time.
class ComputingTimes {
 public:
  ComputingTimes(const plan::Plan& plan, const trace::StepTrace& step) : plan_(plan), tasks_(plan.devices().size()) {
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::Task& task = plan.tasks()[t];
      if (task.lane == plan::Lane::compute) {
        tasks_[task.device.index()].push_back({step.events[t].start, step.events[t].end, {}});
      }
    }
    for (std::vector<Computing>& tasks : tasks_) {
      std::sort(tasks.begin(), tasks.end(), [](const Computing& a, const Computing& b) { return a.start < b.start; });
      Nanoseconds sum;
      for (Computing& task : tasks) {
        task.before = sum;
        sum += task.end - task.start;
      }
    }
  }

  /// The time for which a member's device computed within a stretch of the step, the mean over the members.
  Nanoseconds between(std::span<const TaskId> members, Nanoseconds from, Nanoseconds to) const {
    Nanoseconds sum;
    for (const TaskId member : members) {
      const std::vector<Computing>& tasks = tasks_[plan_[member].device.index()];
      sum += until(tasks, to) - until(tasks, from);
    }
    return Nanoseconds(sum.count / static_cast<std::int64_t>(members.size()));
  }

 private:
  struct Computing {
    Nanoseconds start;
    Nanoseconds end;
    Nanoseconds before;  // the time that the tasks before it computed
  };

  /// The time for which a device computed before that moment.
  static Nanoseconds until(const std::vector<Computing>& tasks, Nanoseconds moment) {
    const auto after = std::partition_point(tasks.begin(), tasks.end(), [&](const Computing& task) { return task.start < moment; });
    if (after == tasks.begin()) {
      return {};
    }
    const Computing& last = *std::prev(after);
    return last.before + std::min(last.end, moment) - last.start;
  }

  const plan::Plan& plan_;
  std::vector<std::vector<Computing>> tasks_;
};

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

/// "has 1 core", "is a GPU RTX-3090", "is 1/4 of GPU 0".
std::string device_words(const Job& job) {
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
Record trained(const Training& run) {
  const Job& job = run.job();
  const double rate = std::visit([](const auto& settings) { return settings.rate; }, job.request().step.optimizer);
  return {key::model(job.model().name()),
          key::parameters(job.model().parameter_count()),
          key::parameter_bytes(job.model().parameter_count() * 4),
          key::batch(job.request().step.global_batch),
          key::optimizer(fmt::format("{} with learning rate {:.6g}", job.spec().optimizer, rate)),
          key::loss(std::string(strategy::to_text(job.request().step.loss))),
          key::precision(std::string(strategy::to_text(job.request().step.precision))),
          key::seed(job.seed()),
          key::strategy(job.request().strategy.name()),
          key::device(device_words(job))};
}

/// By block: the gradients of a step that were not zero after rounding. Empty if nothing is rounded.
std::vector<double> gradients_left(const Training& run) {
  std::vector<double> left(run.roundings().empty() ? 0 : run.job().model().blocks().size(), 0);
  for (const exec::RoundingTally& tally : run.roundings()) {
    if (tally.role == plan::Role::gradient && tally.block >= 0) {
      left[static_cast<std::size_t>(tally.block)] += static_cast<double>(tally.rounding.values - tally.rounding.underflows) /
                                                     static_cast<double>(run.losses().size());
    }
  }
  return left;
}

/// The readings of GPU 0 and of the other GPUs, for a table; empty without a GPU.
Record gpu_summary(const Training& run) {
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

Record scale_record(const Training& run) {
  const exec::Rounding rounding = exec::total_rounding(run.roundings());
  const std::optional<op::ScaleState> scale = run.scaler();
  Record record{key::emulated(run.emulated()), key::underflows(rounding.underflows), key::overflows(rounding.overflows),
                key::skipped_steps(scale ? static_cast<std::int64_t>(scale->skipped_steps) : 0),
                key::final_scale(scale ? std::optional(scale->scale) : std::nullopt)};
  if (const std::string products = run.emulated_products(); !products.empty()) {
    record.set(key::emulated_products, products);
  }
  if (const std::string unit = run.arithmetic(); !unit.empty()) {
    record.set(key::arithmetic, unit);
  }
  return record;
}

/// One entry per transfer and collective of the plan: its size, its time from the arrival of all members (the median over the
/// traced steps of the last run), and the share of that time in which its devices computed.
std::vector<Record> message_records(const Training& run) {
  const plan::Plan& plan = run.plan();
  std::vector<ComputingTimes> computing;
  for (const trace::StepTrace& step : run.trace().steps) {
    computing.emplace_back(plan, step);
  }
  std::vector<Record> list;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    if (members.empty()) {
      continue;
    }
    const plan::Task& first = plan[members[0]];
    std::vector<Nanoseconds> times;
    Nanoseconds taken;
    Nanoseconds computed;
    for (std::size_t s = 0; s < computing.size(); ++s) {
      const trace::StepTrace& step = run.trace().steps[s];
      const Nanoseconds from = trace::met_at(plan, step, members[0]);
      const Nanoseconds to = trace::ended_at(plan, step, members[0]);
      times.push_back(to - from);
      taken += to - from;
      computed += computing[s].between(members, from, to);
    }
    list.push_back({key::kind(std::string(plan::verb(first))), key::bytes(plan::bytes_of(plan, plan::payload(first))),
                    key::time_ns(trace::spread(times).median), key::overlapped(trace::share_of(computed, taken))});
  }
  return list;
}

Record measured_record(const Training& run) {
  const Job& job = run.job();
  Record all = job::times_record(run.timed(), job.request().step.global_batch, run.trace().origin);
  all.update(job::totals_record(run.totals(), run.flops()));
  all.update(scale_record(run));
  all.update({key::global_batch(run.job().request().step.global_batch), key::warmup(run.warmup()),
              key::steps_timed(static_cast<std::int64_t>(run.timed().size())), key::losses(run.losses()),
              key::device_list(job::device_records(run.plan(), run.study(), run.peak(), job.imagined() ? nullptr : &job.cluster())),
              key::gpus(gpus_json(run)), key::critical_path(job::path_json(run.study())),
              key::arrivals(job::arrival_records(run.study())), key::origin(std::string(trace::to_text(run.trace().origin))),
              key::oversubscribed(run.job().cluster().oversubscribed())});
  return all;
}

}  // namespace

double samples_per_s(const Training& run) { return job::samples_per_s(run.timed(), run.job().request().step.global_batch); }

Json gpus_json(const Training& run) {
  Json list = Json::array();
  for (const exec::GpuReading& gpu : run.gpus()) {
    using Entry = key::GpuEntry;
    const std::optional<double> utilization = gpu.utilization > 0 ? std::optional(gpu.utilization)
                                                                  : std::nullopt;  // kernels ran, so 0 was not measured
    list.push_back(Record{Entry::ordinal(gpu.ordinal), Entry::rank(gpu.rank), Entry::samples(gpu.samples),
                          Entry::utilization(utilization), Entry::memory_used_bytes(gpu.memory_used), key::memory_bytes(gpu.memory),
                          Entry::clock_mhz(gpu.clock_mhz), Entry::highest_clock_mhz(gpu.highest_clock_mhz),
                          Entry::memory_clock_mhz(gpu.memory_clock_mhz), Entry::watts(gpu.watts), Entry::celsius(gpu.celsius),
                          Entry::slowed_by(gpu.slowed_by)}
                       .json());
  }
  return list;
}

Record training_record(const Training& run) {
  Record record = measured_record(run);
  record.update(kept_losses(run.losses()));
  const trace::DeviceTime mean = run.mean_time();
  record.update({key::compute_ns(mean.busy), key::communication_ns(mean.communication), key::exposed_ns(mean.exposed),
                 key::waiting_ns(mean.waiting), key::delayed_ns(mean.delayed), key::rest_ns(mean.rest()),
                 key::peak_bytes(*std::max_element(run.peak().begin(), run.peak().end()))});
  record.update({key::trained(trained(run)), key::gradients_left(gradients_left(run))});
  record.update(gpu_summary(run));
  return record;
}

Record plan_record(const Training& run) {
  const std::vector<Bytes> buffers = run.buffer_bytes();
  return {key::buffer_bytes(*std::max_element(buffers.begin(), buffers.end())), key::messages(message_records(run))};
}

}  // namespace baton::training
