#include "baton/lab/training_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/cluster/gpu.h"
#include "baton/exec/backend/cuda/cuda.h"
#include "baton/lab/environment.h"

namespace baton::lab {
namespace {

constexpr std::array<const char*, trace::PathSegment::kinds> path_names{"compute", "communication", "delay", "overhead", "load"};

/// Each with its devices, and how its clock stood to rank 0's.
Json ranks_json(const Training& run) {
  Json list = Json::array();
  const Job& job = run.job();
  const std::vector<exec::Place> alone{{.host = job.machine().host}};
  const std::vector<exec::Place>& places = job.world() == nullptr ? alone : job.world()->places();
  for (std::size_t r = 0; r < places.size(); ++r) {
    Json devices = Json::array();
    for (const cluster::Device& device : job.cluster().devices()) {
      if (device.rank == static_cast<int>(r)) {
        devices.push_back(device.name);
      }
    }
    const exec::ClockFit clock = r < run.clocks().size() ? run.clocks()[r] : exec::ClockFit{};
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

Json roundings_json(const Training& run) {
  Json list = Json::array();
  for (const exec::RoundingTally& tally : run.roundings()) {
    list.push_back({{"phase", plan::to_text(tally.phase)},
                    {"block", tally.block},
                    {"what", plan::to_text(tally.role)},
                    {"values", tally.rounding.values},
                    {"underflows", tally.rounding.underflows},
                    {"overflows", tally.rounding.overflows}});
  }
  return list;
}

/// As given; what the optimizer has by default is filled in.
Json settings_json(const Job& job) {
  Json settings;
  for (const JobField& field : job_fields()) {
    settings[field.name] = job.words().*field.word;
  }
  op::Optimizer optimizer = job.request().step.optimizer;
  op::attributes(optimizer, [&](std::string_view name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>) {
      for (const auto& [flag, attribute] :
           {std::pair("lr", "rate"), std::pair("momentum", "momentum"), std::pair("weight-decay", "weight_decay")}) {
        if (name == attribute && settings[flag] == "") {
          settings[flag] = fmt::format("{}", value);
        }
      }
    }
  });
  return settings;
}

/// Of what kind the GPUs are; null if it ran on cores, or was simulated.
Json gpu_name(const Job& job) {
  const std::optional<cluster::GpuPart>& gpu = job.cluster().devices()[0].gpu;
  if (!gpu || job.simulated()) {
    return {};
  }
  const std::vector<cluster::Gpu> gpus = exec::find_gpus();
  const auto ordinal = static_cast<std::size_t>(gpu->ordinal);
  return ordinal < gpus.size() ? Json(gpus[ordinal].name) : Json();
}

/// At most 50 times that stand for as many equal shares of the steps, from the shortest on: what a histogram is made from.
Json quantiles_json(std::vector<Nanoseconds> times) {
  std::sort(times.begin(), times.end());
  const std::size_t kept = std::min<std::size_t>(times.size(), 50);
  Json list = Json::array();
  for (std::size_t q = 0; q < kept; ++q) {
    list.push_back(times[(2 * q + 1) * times.size() / (2 * kept)].count);
  }
  return list;
}

/// Of the steps that were timed; `time_per_step_ns` is their median, from `time_low_ns` to `time_high_ns` its interval. All are of
/// one instance: what another run of the same job would differ by is not in it.
Json times_json(const Training& run) {
  const trace::Spread spread = trace::spread(run.timed());
  const trace::MedianInterval interval = trace::median_interval(run.timed());
  return {{"time_per_step_ns", spread.median.count},
          {"time_low_ns", interval.low.count},
          {"time_high_ns", interval.high.count},
          {"interval_level", interval.level > 0 && !run.simulated() ? Json(interval.level) : Json()},
          {"instances", 1},
          {"mean_ns", spread.mean.count},
          {"std_ns", spread.std.count},
          {"p5_ns", spread.p5.count},
          {"p95_ns", spread.p95.count},
          {"min_ns", spread.min.count},
          {"max_ns", spread.max.count},
          {"quantiles_ns", quantiles_json(run.timed())},
          {"samples_per_s", samples_per_s(run)}};
}

/// Of a step, over all devices.
Json totals_json(const Training& run) {
  const plan::Totals totals = run.totals();
  return {{"transfers", totals.transfers},
          {"transfers_forward", totals.transfers_forward},
          {"sent_bytes", totals.work.sent.count},
          {"flops", totals.work.flops.count}};
}

Json scale_json(const Training& run) {
  const exec::Rounding rounding = exec::sum(run.roundings());
  const std::optional<op::ScaleState> scale = run.scaler();
  return {{"emulated", run.emulated()},
          {"underflows", rounding.underflows},
          {"overflows", rounding.overflows},
          {"skipped_steps", scale ? static_cast<std::int64_t>(scale->skipped_steps) : 0},
          {"final_scale", scale ? Json(scale->scale) : Json()}};
}

/// For each device of the plan shares of the step, memory and bytes.
Json devices_json(const Training& run) {
  const std::vector<plan::Totals> totals = plan::totals_by_device(run.plan());
  const Job& job = run.job();
  std::vector<std::int64_t> tasks(totals.size(), 0);
  for (const plan::Task& task : run.plan().tasks()) {
    ++tasks[task.device.index()];
  }
  Json list = Json::array();
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const trace::DeviceTime& time = run.device_times()[d];
    const auto part = [&](Nanoseconds of) { return trace::share(of, run.traced()); };
    list.push_back({{"name", run.plan().devices()[d]},
                    {"stands_for", run.copies()},
                    {"cores", job.imagined() ? std::vector<int>{} : job.cluster().devices()[d].cores},
                    {"rank", job.imagined() ? 0 : job.cluster().devices()[d].rank},
                    {"busy", part(time.busy)},
                    {"idle", part(time.idle)},
                    {"waiting", part(time.waiting)},
                    {"exposed", part(time.exposed)},
                    {"overlapped", part(time.overlapped)},
                    {"delayed", part(time.delayed)},
                    {"loading", part(time.loading)},
                    {"rest", part(time.rest())},
                    {"peak_bytes", run.peak()[d].count},
                    {"tasks", tasks[d]},
                    {"sent_bytes", totals[d].work.sent.count},
                    {"received_bytes", totals[d].work.received.count}});
  }
  return list;
}

/// How devices came to collectives.
Json arrivals_json(const Training& run) {
  Json list = Json::array();
  for (const findings::Comer& comer : run.comers()) {
    list.push_back({{"device", comer.name},
                    {"last", comer.last_share},
                    {"held_up_ns", comer.held_up.count},
                    {"phase", comer.phase},
                    {"excess_ns", comer.excess.count},
                    {"steps", comer.steps},
                    {"latest_in", comer.latest_in}});
  }
  return list;
}

/// What their drivers said.
Json gpus_json(const Training& run) {
  Json list = Json::array();
  for (const exec::GpuReading& gpu : run.gpus()) {
    list.push_back({{"ordinal", gpu.ordinal},
                    {"rank", gpu.rank},
                    {"samples", gpu.samples},
                    {"utilization", gpu.utilization > 0 ? Json(gpu.utilization) : Json()},  // kernels ran, so 0 is no reading
                    {"memory_used_bytes", gpu.memory_used.count},
                    {"memory_bytes", gpu.memory.count},
                    {"clock_mhz", gpu.clock_mhz},
                    {"highest_clock_mhz", gpu.highest_clock_mhz},
                    {"memory_clock_mhz", gpu.memory_clock_mhz},
                    {"watts", gpu.watts},
                    {"celsius", gpu.celsius},
                    {"slowed_by", gpu.slowed_by}});
  }
  return list;
}

/// What it was trained on, and one entry per evaluation in each list.
Json evaluations_json(const Training& run) {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  Json steps = Json::array();
  Json losses = Json::array();
  Json accuracies = Json::array();
  Json perplexities = Json::array();
  for (const Evaluation& evaluation : run.evaluations()) {
    steps.push_back(evaluation.step);
    losses.push_back(evaluation.loss);
    accuracies.push_back(number(evaluation.accuracy));
    perplexities.push_back(number(evaluation.perplexity));
  }
  Json all{{"eval_step", steps}, {"eval_loss", losses}, {"eval_accuracy", accuracies}, {"eval_perplexity", perplexities}};
  if (const JobData* data = run.job().data()) {
    std::int64_t waited = 0;
    for (const Nanoseconds wait : run.data_waits()) {
      waited += wait.count;
    }
    all.update(Json{{"data", data->training().source().description().format},
                    {"data_samples", data->training().order().samples()},
                    {"steps_per_epoch", data->training().order().steps_per_epoch()},
                    {"data_wait_ns", waited}});
  }
  return all;
}

/// Shares of the step, by kind.
Json path_json(const Training& run) {
  Json path;
  for (std::size_t kind = 0; kind < path_names.size(); ++kind) {
    path[path_names[kind]] = trace::share(run.path()[kind], run.traced());
  }
  return path;
}

}  // namespace

double samples_per_s(const Training& run) {
  const Nanoseconds step = trace::spread(run.timed()).median;
  return step.count == 0 ? 0 : static_cast<double>(run.job().request().step.global_batch) * 1e9 / static_cast<double>(step.count);
}

Json measured_json(const Training& run) {
  Json all = times_json(run);
  all.update(totals_json(run));
  all.update(scale_json(run));
  all.update(Json{{"global_batch", run.job().request().step.global_batch},
                  {"warmup", run.warmup()},
                  {"steps_timed", run.timed().size()},
                  {"losses", run.losses()},
                  {"device_list", devices_json(run)},
                  {"gpus", gpus_json(run)},
                  {"critical_path", path_json(run)},
                  {"arrivals", arrivals_json(run)},
                  {"origin", trace::to_text(run.trace().origin)},
                  {"oversubscribed", run.job().cluster().oversubscribed()}});
  return all;
}

Json timeline_json(const Training& run, const std::string& label) {
  const plan::Plan& plan = run.plan();
  std::vector<const trace::StepTrace*> steps;
  for (const trace::StepTrace& step : run.trace().steps) {
    steps.push_back(&step);
  }
  if (steps.empty()) {
    return {};
  }
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end(),
                   [](const auto* a, const auto* b) { return a->duration < b->duration; });
  const trace::StepTrace& step = *steps[steps.size() / 2];
  std::vector<bool> critical(plan.tasks().size(), false);
  for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
    critical[segment.task.index()] = critical[segment.task.index()] || segment.kind != trace::PathSegment::Kind::overhead;
  }
  Json lanes = Json::array();
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    lanes.push_back(plan::to_text(static_cast<plan::Lane>(lane)));
  }
  Json events = Json::array();
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
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
      one["met"] = trace::met_at(plan, step, TaskId(t)).count;
    }
    events.push_back(std::move(one));
  }
  return {{"label", label},
          {"origin", trace::to_text(run.trace().origin)},
          {"duration_ns", step.duration.count},
          {"devices", plan.devices()},
          {"lanes", lanes},
          {"events", events},
          {"gpus", gpus_json(run)}};
}

Json result_json(const Training& run, const std::string& command) {
  const Job& job = run.job();
  const strategy::Request& request = job.request();
  Json times = Json::array();
  for (const Nanoseconds time : run.step_times()) {
    times.push_back(time.count);
  }
  Json all{{"command", command},
           {"model", job.model().name()},
           {"parameters", job.model().parameter_count()},
           {"strategy", request.strategy},
           {"backend", job.backend().name()},
           {"loss", strategy::to_text(request.step.loss)},
           {"optimizer", job.words().optimizer},
           {"precision", strategy::to_text(request.step.precision)},
           {"settings", settings_json(job)},
           {"seed", job.seed()},
           {"steps", run.step_times().size()},
           {"steps_before", run.steps_before()},
           {"gpu", gpu_name(job)}};
  all.update(measured_json(run));
  all.update(evaluations_json(run));
  all.update(Json{{"step_times_ns", times},
                  {"roundings", roundings_json(run)},
                  {"costs", run.simulated() ? Json(run.simulation().cost_origin()) : Json()},
                  {"ranks", run.simulated() ? Json::array() : ranks_json(run)},
                  {"environment", environment(job.machine())}});
  return all;
}

}  // namespace baton::lab
