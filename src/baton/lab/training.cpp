#include "baton/lab/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/lab/environment.h"
#include "baton/plan/memory.h"

namespace baton::lab {
namespace {

constexpr std::array<const char*, 4> path_names{"compute", "communication", "delay", "overhead"};

}  // namespace

double share(Nanoseconds part, Nanoseconds whole) {
  return whole.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(whole.count);
}

std::pair<Nanoseconds, Nanoseconds> median_interval(std::vector<Nanoseconds> times) {
  if (times.empty()) {
    return {};
  }
  std::sort(times.begin(), times.end());
  // Order statistics: the number of times below the true median is binomial, whatever their distribution.
  const auto n = static_cast<double>(times.size());
  const double reach = 0.98 * std::sqrt(n);
  const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(n / 2 - reach)));
  const auto high = static_cast<std::size_t>(std::min(n - 1, std::ceil(n / 2 + reach)));
  return {times[low], times[high]};
}

double median_uncertainty(std::vector<Nanoseconds> times) {
  if (times.size() < 6) {
    return 1;
  }
  const auto [low, high] = median_interval(times);
  const Nanoseconds median = trace::spread(times).median;
  return median.count == 0 ? 0 : share(high - low, median) / 2;
}

Training::Training(const JobWords& words, const cluster::Machine& machine, const Calibration::Progress& progress,
                   exec::World* world)
    : job_(std::make_unique<Job>(words, machine, world)) {
  if (job_->simulated()) {
    open_simulation(progress);
  } else {
    plan_ = std::make_unique<plan::Plan>(job_->compile());
    executor_ = std::make_unique<exec::Executor>(*plan_, job_->cluster(), job_->backend(),
                                                 exec::DataOptions{.seed = job_->seed(), .samples = job_->samples()}, world);
    arenas_ = executor_->arenas();
    scaler_ = read_scaler();
  }
  device_times_.resize(plan_->devices().size());
  arrivals_.resize(plan_->devices().size());
}

void Training::open_simulation(const Calibration::Progress& progress) {
  sim::StandsFor stands_for;
  if (std::optional<strategy::Folded> folded = job_->fold()) {
    plan_ = std::make_unique<plan::Plan>(std::move(folded->plan));
    stands_for = std::move(folded->stands_for);
    copies_ = static_cast<std::int64_t>(stands_for[0].size());
  } else {
    plan_ = std::make_unique<plan::Plan>(job_->compile());
  }
  plan::Limits limits = job_->limits(*plan_);
  limits.slice = copies_ > 1;
  limits.memory.resize(plan_->devices().size());
  for (std::size_t d = 0; d < stands_for.size(); ++d) {
    limits.memory[d] = job_->cluster().device(stands_for[d][0]).memory;
  }
  const plan::Verdict verdict = plan::verify(*plan_, limits);
  plan::require(verdict);
  arenas_ = verdict.memory.peak;
  simulation_ = std::make_unique<Simulation>(*job_, *plan_, std::move(stands_for), progress);
}

checkpoint::Archive Training::snapshot() const {
  check(executor_ != nullptr, "a simulated training has no weights");
  return checkpoint::snapshot(*plan_, *executor_,
                              {.step = steps_before_ + static_cast<std::int64_t>(losses_.size()),
                               .seed = job_->seed(),
                               .model = job_->model().name(),
                               .optimizer = job_->words().optimizer});
}

void Training::restore(const checkpoint::Archive& archive) {
  check(executor_ != nullptr && losses_.empty(), "a training that has begun cannot go on from a checkpoint");
  const checkpoint::Progress progress = checkpoint::restore(*plan_, *executor_, archive);
  if (progress.seed != job_->seed()) {
    throw usage_error("the checkpoint was trained on the data of seed {}, but --seed is {}", progress.seed, job_->seed());
  }
  steps_before_ = progress.step;
  scaler_ = read_scaler();
}

exec::RunResult Training::simulate() const {
  exec::RunResult result;
  result.trace.origin = trace::Origin::simulated;
  result.trace.steps.push_back(simulation_->step());
  result.step_times.push_back(result.trace.steps[0].duration);
  result.peak = arenas_;
  return result;
}

void Training::run(std::int64_t steps, std::int64_t warmup, const exec::Executor::Progress& progress) {
  warmup = simulated() ? 0 : warmup;
  exec::RunResult result = simulated() ? simulate() : executor_->run({.steps = steps, .warmup = warmup}, progress);
  const std::size_t dropped = std::min<std::size_t>(static_cast<std::size_t>(warmup), result.step_times.size());
  losses_.insert(losses_.end(), result.losses.begin(), result.losses.end());
  step_times_.insert(step_times_.end(), result.step_times.begin(), result.step_times.end());
  timed_.insert(timed_.end(), result.step_times.begin() + static_cast<std::ptrdiff_t>(dropped), result.step_times.end());
  warmup_ += static_cast<std::int64_t>(dropped);
  peak_ = result.peak;
  gpus_ = result.gpus;
  for (const exec::RoundingTally& tally : result.roundings) {
    exec::add(roundings_, tally);
  }
  for (const trace::StepTrace& step : result.trace.steps) {
    const std::vector<trace::DeviceTime> times = trace::device_times(*plan_, step);
    const std::vector<trace::Arrivals> came = trace::arrivals(*plan_, step);
    for (std::size_t d = 0; d < times.size(); ++d) {
      device_times_[d] += times[d];
      arrivals_[d] += came[d];
    }
    for (const trace::PathSegment& segment : trace::critical_path(*plan_, step)) {
      path_[static_cast<std::size_t>(segment.kind)] += segment.end - segment.start;
    }
    traced_ += step.duration;
    ++traced_steps_;
  }
  trace_ = std::move(result.trace);
  clocks_ = std::move(result.clocks);
  scaler_ = read_scaler();
}

std::vector<findings::Comer> Training::comers() const {
  std::vector<findings::Comer> list;
  for (std::size_t d = 0; d < arrivals_.size() && copies_ == 1; ++d) {
    const trace::Arrivals& came = arrivals_[d];
    if (came.collectives == 0) {
      continue;
    }
    const trace::Excess excess = trace::excess(*plan_, arrivals_, DeviceId(d));
    list.push_back({.name = plan_->devices()[d],
                    .last_share = static_cast<double>(came.last) / static_cast<double>(came.collectives),
                    .held_up = Nanoseconds(came.held_up.count / traced_steps_),
                    .phase = std::string(plan::to_text(excess.phase)),
                    .excess = Nanoseconds(excess.time.count / traced_steps_)});
  }
  return list;
}

std::vector<Bytes> Training::buffer_bytes() const {
  std::vector<plan::Task> tasks = plan_->tasks();
  for (plan::Task& task : tasks) {
    task.workspace = Bytes(0);
  }
  const plan::Plan bare(plan_->title(), plan_->devices(), plan_->buffers(), std::move(tasks));
  return plan::plan_memory(bare, plan::order(bare)).peak;
}

bool Training::emulated() const {
  return !job_->imagined() && !job_->backend().is_native(strategy::dtype_of(job_->request().step.precision));
}

std::optional<op::ScaleState> Training::read_scaler() const {
  for (std::size_t b = 0; b < plan_->buffers().size() && !simulated(); ++b) {
    if (std::holds_alternative<plan::LossScaler>(plan_->buffers()[b].content)) {
      const std::vector<double> state = executor_->read(BufferId(b));
      return op::ScaleState{static_cast<float>(state[0]), static_cast<float>(state[1]), static_cast<float>(state[2]),
                            static_cast<float>(state[3])};
    }
  }
  return std::nullopt;
}

/// Each with its devices, and how its clock stood to rank 0's.
Json Training::describe_ranks() const {
  Json list = Json::array();
  const std::vector<exec::Place> alone{{.host = job_->machine().host}};
  const std::vector<exec::Place>& places = job_->world() == nullptr ? alone : job_->world()->places();
  for (std::size_t r = 0; r < places.size(); ++r) {
    Json devices = Json::array();
    for (const cluster::Device& device : job_->cluster().devices()) {
      if (device.rank == static_cast<int>(r)) {
        devices.push_back(device.name);
      }
    }
    const exec::ClockFit clock = r < clocks_.size() ? clocks_[r] : exec::ClockFit{};
    list.push_back({{"rank", r},
                    {"host", places[r].host},
                    {"node", places[r].node},
                    {"devices", devices},
                    {"clock_offset_ns", clock.first.offset.count},
                    {"clock_drift_ppm", clock.drift * 1e6},
                    {"clock_error_ns", clock.error.count}});
  }
  return list;
}

Json Training::result(const std::string& command) const {
  const trace::Spread spread = trace::spread(timed_);
  const auto [low, high] = median_interval(timed_);
  const std::vector<plan::Totals> totals = plan::totals_by_device(*plan_);
  Json devices = Json::array();
  plan::Totals all;
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const trace::DeviceTime& time = device_times_[d];
    all.transfers += totals[d].transfers * copies_;
    all.transfers_forward += totals[d].transfers_forward * copies_;
    all.work.sent += totals[d].work.sent * copies_;
    all.work.flops += totals[d].work.flops * copies_;
    devices.push_back({{"name", plan_->devices()[d]},
                       {"stands_for", copies_},
                       {"cores", job_->imagined() ? std::vector<int>{} : job_->cluster().devices()[d].cores},
                       {"rank", job_->imagined() ? 0 : job_->cluster().devices()[d].rank},
                       {"busy", share(time.busy, traced_)},
                       {"idle", share(time.idle, traced_)},
                       {"waiting", share(time.waiting, traced_)},
                       {"exposed_communication", share(time.exposed, traced_)},
                       {"overlapped_communication", share(time.overlapped, traced_)},
                       {"delayed", share(time.delayed, traced_)},
                       {"rest", share(time.rest(), traced_)},
                       {"peak_bytes", d < peak_.size() ? peak_[d].count : 0},
                       {"sent_bytes", totals[d].work.sent.count},
                       {"received_bytes", totals[d].work.received.count}});
  }
  Json path;
  for (std::size_t kind = 0; kind < path_names.size(); ++kind) {
    path[path_names[kind]] = share(path_[kind], traced_);
  }
  Json times = Json::array();
  for (const Nanoseconds time : step_times_) {
    times.push_back(time.count);
  }
  const strategy::Request& request = job_->request();
  Json roundings = Json::array();
  for (const exec::RoundingTally& tally : roundings_) {
    roundings.push_back({{"phase", plan::to_text(tally.phase)},
                         {"block", tally.block},
                         {"what", plan::to_text(tally.role)},
                         {"values", tally.rounding.values},
                         {"underflows", tally.rounding.underflows},
                         {"overflows", tally.rounding.overflows}});
  }
  Json gpus = Json::array();
  for (const exec::GpuReading& gpu : gpus_) {
    gpus.push_back({{"ordinal", gpu.ordinal},
                    {"samples", gpu.samples},
                    {"utilization", gpu.utilization},
                    {"memory_used_bytes", gpu.memory_used.count},
                    {"memory_bytes", gpu.memory.count},
                    {"clock_mhz", gpu.clock_mhz},
                    {"highest_clock_mhz", gpu.highest_clock_mhz},
                    {"memory_clock_mhz", gpu.memory_clock_mhz},
                    {"watts", gpu.watts},
                    {"celsius", gpu.celsius},
                    {"slowed_by", gpu.slowed_by}});
  }
  Json arrivals = Json::array();
  for (const findings::Comer& comer : comers()) {
    arrivals.push_back({{"device", comer.name},
                        {"last", comer.last_share},
                        {"held_up_ns", comer.held_up.count},
                        {"phase", comer.phase},
                        {"excess_ns", comer.excess.count}});
  }
  const std::optional<op::ScaleState> scale = scaler();
  Json settings;
  for (const JobField& field : job_fields()) {
    settings[field.name] = job_->words().*field.word;
  }
  return {{"command", command},
          {"model", job_->model().name()},
          {"parameters", job_->model().parameter_count()},
          {"strategy", request.strategy},
          {"backend", job_->backend().name()},
          {"loss", strategy::to_text(request.step.loss)},
          {"optimizer", job_->words().optimizer},
          {"precision", strategy::to_text(request.step.precision)},
          {"emulated", emulated()},
          {"underflows", exec::sum(roundings_).underflows},
          {"overflows", exec::sum(roundings_).overflows},
          {"roundings", roundings},
          {"skipped_steps", scale ? Json(static_cast<std::int64_t>(scale->skipped_steps)) : Json(0)},
          {"final_scale", scale ? Json(scale->scale) : Json()},
          {"settings", settings},
          {"devices", devices},
          {"gpus", gpus},
          {"global_batch", request.step.global_batch},
          {"seed", job_->seed()},
          {"warmup", warmup_},
          {"steps", step_times_.size()},
          {"steps_before", steps_before_},
          {"step_time_ns",
           {{"median", spread.median.count},
            {"mean", spread.mean.count},
            {"std", spread.std.count},
            {"p5", spread.p5.count},
            {"p95", spread.p95.count},
            {"min", spread.min.count},
            {"max", spread.max.count},
            {"median_low", low.count},
            {"median_high", high.count}}},
          {"step_times_ns", times},
          {"losses", losses_},
          {"flops_step", all.work.flops.count},
          {"transfers_forward", all.transfers_forward},
          {"transfers_step", all.transfers},
          {"bytes_on_wire", all.work.sent.count},
          {"critical_path", path},
          {"arrivals", arrivals},
          {"origin", trace::to_text(trace_.origin)},
          {"costs", simulated() ? Json(simulation_->cost_origin()) : Json()},
          {"ranks", simulated() ? Json::array() : describe_ranks()},
          {"environment", environment(job_->machine(), job_->cluster())}};
}

Json Training::timeline(const std::string& label) const {
  if (trace_.steps.empty()) {
    return {};
  }
  std::vector<const trace::StepTrace*> steps;
  for (const trace::StepTrace& step : trace_.steps) {
    steps.push_back(&step);
  }
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end(),
                   [](const auto* a, const auto* b) { return a->duration < b->duration; });
  const trace::StepTrace& step = *steps[steps.size() / 2];
  std::vector<bool> critical(plan_->tasks().size(), false);
  for (const trace::PathSegment& segment : trace::critical_path(*plan_, step)) {
    critical[segment.task.index()] = critical[segment.task.index()] || segment.kind != trace::PathSegment::Kind::overhead;
  }
  Json events = Json::array();
  for (std::size_t t = 0; t < plan_->tasks().size(); ++t) {
    const plan::Task& task = plan_->tasks()[t];
    const trace::Event& event = step.events[t];
    Json one{{"device", task.device.value},
             {"lane", static_cast<int>(task.lane)},
             {"name", plan::verb(task)},
             {"phase", plan::to_text(task.labels.phase)},
             {"block", task.labels.block},
             {"micro_batch", task.labels.micro_batch},
             {"start", event.start.count},
             {"end", event.end.count},
             {"sent", event.sent.count},
             {"received", event.received.count},
             {"critical", static_cast<bool>(critical[t])}};
    if (plan::meeting_of(task).valid()) {
      one["met"] = trace::met_at(*plan_, step, TaskId(t)).count;
    }
    events.push_back(std::move(one));
  }
  return {{"label", label},
          {"origin", trace::to_text(trace_.origin)},
          {"duration_ns", step.duration.count},
          {"devices", plan_->devices()},
          {"lanes", {"compute", "communication", "host"}},
          {"events", events}};
}

}  // namespace baton::lab
