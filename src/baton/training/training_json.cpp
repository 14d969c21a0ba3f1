#include "baton/training/training_json.h"

#include "baton/cluster/gpu.h"
#include "baton/devices/devices.h"
#include "baton/job/keys.h"
#include "baton/job/step_json.h"
#include "baton/measure/environment.h"
#include "baton/training/training_record.h"

namespace baton::training {

using job::Json;
using job::Record;
namespace key = job::key;

namespace {

/// Each with its devices, and how its clock stood to rank 0's.
Json ranks_json(const Training& run) {
  Json list = Json::array();
  const Job& job = run.job();
  const std::vector<ranks::RankHost> alone{{.host = job.machine().host}};
  const std::vector<ranks::RankHost>& hosts = job.world() == nullptr ? alone : job.world()->hosts();
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    std::vector<std::string> devices;
    for (const cluster::Device& device : job.cluster().devices()) {
      if (device.rank == static_cast<int>(r)) {
        devices.push_back(device.name);
      }
    }
    const ranks::ClockFit clock = r < run.clocks().size() ? run.clocks()[r] : ranks::ClockFit{};
    using Entry = key::RankEntry;
    list.push_back(Record{Entry::rank(static_cast<std::int64_t>(r)), Entry::host(hosts[r].host), Entry::node(hosts[r].node),
                          Entry::devices(devices), Entry::clock_offset_ns(clock.first.offset),
                          Entry::clock_drift_ppm(clock.drift * 1e6), Entry::clock_error_ns(clock.error)}
                       .json());
  }
  return list;
}

Json roundings_json(const Training& run) {
  Json list = Json::array();
  for (const exec::RoundingTally& tally : run.roundings()) {
    using Entry = key::RoundingEntry;
    list.push_back(Record{Entry::phase(std::string(plan::to_text(tally.phase))), Entry::block(tally.block),
                          Entry::what(std::string(plan::to_text(tally.role))), Entry::values(tally.rounding.values),
                          Entry::underflows(tally.rounding.underflows), Entry::overflows(tally.rounding.overflows)}
                       .json());
  }
  return list;
}

/// The name of the GPUs; null if it ran on cores, or was simulated.
Json gpu_name(const Job& job) {
  const std::optional<cluster::GpuPart>& gpu = job.cluster().devices()[0].gpu;
  if (!gpu || job.simulated()) {
    return {};
  }
  const std::vector<cluster::Gpu> gpus = devices::find_gpus();
  const auto ordinal = static_cast<std::size_t>(gpu->ordinal);
  return ordinal < gpus.size() ? Json(gpus[ordinal].name) : Json();
}

/// The data of the training, and one entry per evaluation in each list.
Record evaluations_record(const Training& run) {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  std::vector<std::int64_t> steps;
  std::vector<double> losses;
  Json accuracies = Json::array();
  Json perplexities = Json::array();
  for (const Evaluation& evaluation : run.evaluations()) {
    steps.push_back(evaluation.step);
    losses.push_back(evaluation.loss);
    accuracies.push_back(number(evaluation.accuracy));
    perplexities.push_back(number(evaluation.perplexity));
  }
  Record all{key::eval_step(steps), key::eval_loss(losses), key::eval_accuracy(accuracies), key::eval_perplexity(perplexities)};
  if (const JobData* data = run.job().data()) {
    Nanoseconds waited;
    for (const Nanoseconds wait : run.data_waits()) {
      waited += wait;
    }
    all.update({key::data(data->training()->source().description().format), key::data_samples(data->training()->order().samples()),
                key::steps_per_epoch(data->training()->order().steps_per_epoch()), key::data_wait_ns(waited)});
  }
  return all;
}

}  // namespace

Json timeline_json(const Training& run, const std::string& label) {
  Json timeline = job::timeline_json(run.plan(), run.trace(), label);
  if (!timeline.is_null()) {
    timeline[key::gpus.name] = gpus_json(run);
    const cluster::Cluster& cluster = run.job().cluster();
    timeline[key::playground.name] = job::playground_words(run.job().spec(), cluster.size(),
                                                           cluster.devices()[0].gpu ? "dgx-h100" : "laptop");
  }
  return timeline;
}

Json result_json(const Training& run, const std::string& command) {
  const Job& job = run.job();
  const strategy::Request& request = job.request();
  std::vector<std::int64_t> times;
  for (const Nanoseconds time : run.step_times()) {
    times.push_back(time.count);
  }
  Record all{key::command(command),
             key::model(job.model().name()),
             key::parameters(job.model().parameter_count()),
             key::strategy(request.strategy.name()),
             key::backend(std::string(job.backend().name())),
             key::loss(std::string(strategy::to_text(request.step.loss))),
             key::optimizer(job.spec().optimizer),
             key::precision(std::string(strategy::to_text(request.step.precision))),
             key::settings(job::settings_json(job::with_rates_of(job.spec(), request.step.optimizer))),
             key::seed(job.seed()),
             key::steps(static_cast<std::int64_t>(run.step_times().size())),
             key::steps_before(run.steps_before()),
             key::gpu(gpu_name(job))};
  all.update(training_record(run));
  all.set(key::losses, run.losses());
  if (!run.simulated()) {  // a simulated plan may have millions of tasks
    all.update(plan_record(run));
  }
  all.update(evaluations_record(run));
  all.update({key::step_times_ns(times), key::roundings(roundings_json(run)),
              key::costs(run.simulated() ? Json(run.simulation().cost_origin()) : Json()),
              key::ranks(run.simulated() ? Json::array() : ranks_json(run)),
              key::environment(measure::environment(job.machine()))});
  return all.json();
}

}  // namespace baton::training
