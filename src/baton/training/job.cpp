#include "baton/training/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/devices/backends.h"
#include "baton/devices/devices.h"
#include "baton/exec/host/host_backend.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"
#include "baton/model/zoo.h"

namespace baton::training {
namespace {

std::string list_backends() {
  std::vector<std::string> forms;
  for (const devices::BackendKind& kind : devices::backends()) {
    forms.push_back(fmt::format("{} ({})", kind.name, kind.summary));
  }
  return either(forms);
}

cluster::Cluster make_cluster(const JobSpec& spec, const cluster::Machine& machine, ranks::World* world) {
  if (job::is_imagined(spec)) {
    return job::imagine(spec);
  }
  const cluster::DeviceNames names = spec.devices.names();
  return cluster::Cluster(world == nullptr ? devices::open_devices(names, machine, spec.memory)
                                           : devices::open_devices_of_ranks(names, machine, spec.memory, *world),
                          spec.link);
}

/// A model that leaves its vocabulary open takes that of the data.
JobSpec with_vocabulary(JobSpec spec, const JobOverrides& overrides) {
  if (overrides.model || !model::lacks_vocabulary(spec.model) ||
      (!overrides.data && (spec.data.empty() || data::is_random(spec.data)))) {
    return spec;
  }
  const data::Parts parts = overrides.data
                                ? *overrides.data
                                : data::open(spec.data,
                                             {.tokenizer = spec.tokenizer, .given_tokenizer = {}, .token_type = spec.token_type});
  const data::Source& source = parts.train ? *parts.train : *parts.test;
  if (const std::int64_t vocabulary = source.description().vocabulary; vocabulary > 0) {
    spec.model = spec.model.with(model::ModelSettings().add("vocab", vocabulary));
  }
  return spec;
}

}  // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> fields = [] {
    std::vector<JobField> list = job::fields();
    for (JobField& field : list) {
      if (field.name == "backend") {
        field.help = list_backends() + " (default: the fastest one for the devices)";
        field.values = devices::backend_names;
      }
    }
    return list;
  }();
  return fields;
}

const JobField* find_field(std::string_view name) { return job::find_field(job_fields(), name); }

Job::Job(const JobSpec& given, cluster::Machine machine, std::shared_ptr<ranks::World> world, JobOverrides overrides)
    : Job(Ready{}, with_vocabulary(with_software(given), overrides), std::move(machine), std::move(world), std::move(overrides)) {}

Job::Job(Ready /*ready*/, const JobSpec& spec, cluster::Machine machine, std::shared_ptr<ranks::World> world,
         JobOverrides overrides)
    : spec_(spec),
      overrides_(std::move(overrides)),
      world_(std::move(world)),
      machine_(world_ == nullptr ? std::move(machine) : devices::share_of(machine, *world_)),
      model_(overrides_.model ? overrides_.model->with_seed(spec.seed) : job::make_model(spec)),
      cluster_(make_cluster(spec, machine_, world_.get())),
      backend_(overrides_.backend ? overrides_.backend : devices::backend_for(cluster_.devices(), spec.backend).make()),
      software_(cost::software_by_name(spec.software)),
      fold_beyond_(job::fold_beyond(spec)),
      request_(job::make_request(spec, model_, cluster_, job::is_imagined(spec) ? job::imagined_target() : backend_->target())) {
  if (cluster_.devices()[0].gpu && !imagined() && dynamic_cast<const exec::HostBackend*>(backend_.get()) != nullptr) {
    throw usage_error("the {} backend, which the program brings, computes on cores, not on {}: choose --devices cpu",
                      backend_->name(), cluster_.devices()[0].name);
  }
  spec_.backend = backend_->name();
  spec_.loss = request_.step.loss;
  if (overrides_.model) {
    spec_.model = overrides_.model->name();
  }
  if (overrides_.schedule && !spec_.strategy) {
    request_.strategy = "product";
  }
  if (overrides_.duration && !imagined()) {
    throw usage_error("a cost model of your own is for a simulated machine: name one with --cluster, \"ideal\" if none is meant");
  }
  take_schedule();
  job::require_sense(spec_, request_);
  if (const strategy::Precision precision = request_.step.precision;
      !imagined() && !backend_->supports(strategy::dtype_of(precision))) {
    throw usage_error(
        "the {} backend has no kernels for {}: --backend reference computes it, slowly, or choose another --precision",
        backend_->name(), to_text(precision));
  }
  open_data();
}

plan::Plan Job::compile() const {
  job::require_room(request_, machine_.memory);
  return strategy::compile(request_);
}

void Job::take_schedule() {
  if (!overrides_.schedule) {
    return;
  }
  if (request_.strategy.layout() == nullptr) {
    throw usage_error("strategy {} has no pipeline, so it takes no schedule", request_.strategy.name());
  }
  strategy::Layout& layout = request_.layout;
  const auto devices = static_cast<std::int64_t>(cluster_.size());
  const std::int64_t others = std::max<std::int64_t>(layout.dp, 1) * std::max<std::int64_t>(layout.tp, 1);
  layout.pp = layout.pp > 0 ? layout.pp : std::max<std::int64_t>(devices / others, 1);
  const std::int64_t pieces = layout.micro_batches > 0 ? layout.micro_batches : 2 * layout.pp;
  layout.grid = overrides_.schedule(
      {.devices = layout.pp, .chunks = std::max<std::int64_t>(layout.chunks, 1), .micro_batches = pieces});
  layout.schedule.clear();
  layout.chunks = 0;
}

void Job::open_data() {
  if (!overrides_.data && (spec_.data.empty() || data::is_random(spec_.data))) {
    for (const JobField& field : job_fields()) {
      if (field.topic == job::Topic::data && field.name != "data" && field.given(spec_)) {
        throw usage_error("--{} says how data is read, but there is no data: give it with --data", field.name);
      }
    }
    return;
  }
  if (simulated()) {
    throw usage_error("a simulated step reads no data: leave out --data");
  }
  if (samples() > 0) {
    throw usage_error("--samples counts random samples, and --data brings its own: leave out one of them");
  }
  data_ = std::make_shared<const JobData>(spec_, model_, request_.step.loss, request_.step.global_batch, seed(), overrides_.data);
  spec_ = with_pixel_scale(spec_, data_->training()->source());
  request_.step.loads_ahead = true;
}

std::optional<strategy::Folded> Job::fold() const {
  return imagined() && cluster_.size() > fold_beyond_ ? strategy::fold(request_) : std::nullopt;
}

bool Job::imagined() const { return job::is_imagined(spec_); }

plan::Limits Job::limits(const plan::Plan& plan) const {
  plan::Limits limits = exec::limits(plan, cluster_, *backend_);
  if (imagined()) {
    limits.has_kernel = nullptr;
  }
  return limits;
}

std::optional<double> peak_flops(const Job& job) {
  const strategy::Precision precision = job.request().step.precision;
  const cluster::RateType type = precision == strategy::Precision::tf32 ? cluster::RateType::tf32
                                                                        : cluster::rate_type(strategy::dtype_of(precision)).value();
  double sum = 0;
  for (const cluster::Device& device : job.cluster().devices()) {
    if (!device.gpu) {
      return std::nullopt;
    }
    const std::vector<cluster::Gpu> gpus = devices::find_gpus();
    const auto ordinal = static_cast<std::size_t>(device.gpu->ordinal);
    const cluster::Speed* speed = nullptr;
    const std::vector<cluster::Blueprint>& known = cluster::catalogue();
    for (const cluster::Blueprint& blueprint : known) {
      const std::string model = "NVIDIA " + blueprint.device.name;
      if (ordinal < gpus.size() && (gpus[ordinal].name == model || gpus[ordinal].name.starts_with(model + " "))) {
        speed = &blueprint.device.speed;
      }
    }
    const std::optional<double> rate = speed == nullptr ? std::nullopt : speed->rates[type];
    if (!rate) {
      return std::nullopt;
    }
    sum += *rate / device.gpu->of;
  }
  return sum;
}

std::string Job::oversubscription() const {
  if (const std::size_t ranks = cluster_.most_ranks_on_a_gpu(); ranks > 1) {
    return fmt::format(
        "{} ranks share a GPU: their kernels take turns on it, so this run is real but slower than on GPUs of their own", ranks);
  }
  if (!cluster_.oversubscribed()) {
    return {};
  }
  std::set<std::pair<int, int>> cores;
  for (const cluster::Device& device : cluster_.devices()) {
    for (const int core : device.cores) {
      cores.emplace(device.machine, core);
    }
  }
  return fmt::format("{} devices share {} core{}: they take turns, so this run is real but slower than on cores of their own",
                     cluster_.size(), cores.size(), cores.size() == 1 ? "" : "s");
}

}  // namespace baton::training
