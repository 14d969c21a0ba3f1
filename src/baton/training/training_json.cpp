#include "baton/training/training_json.h"

#include "baton/cluster/gpu.h"
#include "baton/cuda/cuda.h"
#include "baton/job/step_json.h"
#include "baton/measure/environment.h"

namespace baton::training {

using job::Json;

namespace {

/// Each with its devices, and how its clock stood to rank 0's.
Json ranks_json(const Training& run) {
  Json list = Json::array();
  const Job& job = run.job();
  const std::vector<ranks::RankHost> alone{{.host = job.machine().host}};
  const std::vector<ranks::RankHost>& hosts = job.world() == nullptr ? alone : job.world()->hosts();
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    Json devices = Json::array();
    for (const cluster::Device& device : job.cluster().devices()) {
      if (device.rank == static_cast<int>(r)) {
        devices.push_back(device.name);
      }
    }
    const ranks::ClockFit clock = r < run.clocks().size() ? run.clocks()[r] : ranks::ClockFit{};
    list.push_back({{"rank", r},
                    {"host", hosts[r].host},
                    {"node", hosts[r].node},
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

/// Of what kind the GPUs are; null if it ran on cores, or was simulated.
Json gpu_name(const Job& job) {
  const std::optional<cluster::GpuPart>& gpu = job.cluster().devices()[0].gpu;
  if (!gpu || job.simulated()) {
    return {};
  }
  const std::vector<cluster::Gpu> gpus = cuda::find_gpus();
  const auto ordinal = static_cast<std::size_t>(gpu->ordinal);
  return ordinal < gpus.size() ? Json(gpus[ordinal].name) : Json();
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

}  // namespace

double samples_per_s(const Training& run) { return job::samples_per_s(run.timed(), run.job().request().step.global_batch); }

Json measured_json(const Training& run) {
  const Job& job = run.job();
  Json all = job::times_json(run.timed(), job.request().step.global_batch, run.trace().origin);
  all.update(job::totals_json(run.totals(), run.flops()));
  all.update(scale_json(run));
  all.update(
      Json{{"global_batch", run.job().request().step.global_batch},
           {"warmup", run.warmup()},
           {"steps_timed", run.timed().size()},
           {"losses", run.losses()},
           {"device_list", job::devices_json(run.plan(), run.study(), run.peak(), job.imagined() ? nullptr : &job.cluster())},
           {"gpus", gpus_json(run)},
           {"critical_path", job::path_json(run.study())},
           {"arrivals", job::arrivals_json(run.study())},
           {"origin", trace::to_text(run.trace().origin)},
           {"oversubscribed", run.job().cluster().oversubscribed()}});
  return all;
}

Json timeline_json(const Training& run, const std::string& label) {
  Json timeline = job::timeline_json(run.plan(), run.trace(), label);
  if (!timeline.is_null()) {
    timeline["gpus"] = gpus_json(run);
    const cluster::Cluster& cluster = run.job().cluster();
    timeline["playground"] = job::playground_words(run.job().spec(), cluster.size(),
                                                   cluster.devices()[0].gpu ? "dgx-h100" : "laptop");
  }
  return timeline;
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
           {"optimizer", job.spec().optimizer},
           {"precision", strategy::to_text(request.step.precision)},
           {"settings", job::settings_json(job.spec(), request.step.optimizer)},
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
                  {"environment", measure::environment(job.machine())}});
  return all;
}

}  // namespace baton::training
