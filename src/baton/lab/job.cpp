#include "baton/lab/job.h"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/zoo.h"

namespace baton::lab {
namespace {

std::string list_models() {
  std::vector<std::string> forms;
  for (const model::Kind& kind : model::zoo()) {
    forms.push_back(kind.forms);
  }
  return either(forms);
}

std::string list_strategies() {
  std::vector<std::string> names;
  for (const strategy::Strategy& entry : strategy::strategies()) {
    names.push_back(entry.name);
  }
  return either(names);
}

cluster::Cluster make_cluster(const JobWords& words, const cluster::Machine& machine) {
  std::optional<Bytes> memory;
  if (!words.memory.empty()) {
    memory = parse_bytes(words.memory, "--memory");
  }
  std::optional<cluster::Link> link;
  if (!words.link.empty()) {
    link = cluster::parse_link(words.link);
  }
  return cluster::Cluster(cluster::parse_devices(words.devices, machine, memory), link);
}

Bytes parse_megabytes(const std::string& text, std::string_view flag) {
  return Bytes(static_cast<std::int64_t>(parse_number(text, flag, 0, 1e6) * 1048576.0));
}

op::Optimizer make_optimizer(const JobWords& words) {
  op::Optimizer optimizer = op::optimizer_by_name(words.optimizer);
  const auto set = [&](const std::string& text, std::string_view flag, double high, std::string_view field) {
    if (text.empty()) {
      return;
    }
    const double value = parse_number(text, flag, 0, high);
    bool known = false;
    op::attributes(optimizer, [&](std::string_view name, auto& setting) {
      if constexpr (std::is_same_v<std::decay_t<decltype(setting)>, double>) {
        if (name == field) {
          setting = value;
          known = true;
        }
      }
    });
    if (!known) {
      throw usage_error("{} means nothing to {}", flag, words.optimizer);
    }
  };
  set(words.lr, "--lr", 1e6, "rate");
  set(words.momentum, "--momentum", 1, "momentum");
  set(words.weight_decay, "--weight-decay", 1e6, "weight_decay");
  return optimizer;
}

strategy::Layout make_layout(const JobWords& words) {
  strategy::Layout layout;
  layout.bucket = parse_megabytes(words.bucket_mb, "--bucket-mb");
  layout.first_bucket = parse_megabytes(words.first_bucket_mb, "--first-bucket-mb");
  layout.micro_batches = parse_integer(words.micro_batches, "--micro-batches", 1, 1 << 20);
  if (!words.split.empty()) {
    for (const std::string_view part : split(words.split, ',')) {
      layout.split.push_back(parse_integer(part, "a stage of --split", 1, 1 << 20));
    }
  }
  return layout;
}

std::vector<strategy::DelayRequest> make_delays(const std::string& text) {
  std::vector<strategy::DelayRequest> delays;
  if (!text.empty()) {
    for (const std::string_view delay : split(text, ';')) {
      delays.push_back(strategy::parse_delay(delay));
    }
  }
  return delays;
}

}  // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> fields{
      {"model", &JobWords::model, list_models()},
      {"strategy", &JobWords::strategy, list_strategies()},
      {"devices", &JobWords::devices, "cpu (one device), cpu:4 (four), cpu:0-3,4-7 (by cores)"},
      {"batch", &JobWords::batch, "global batch: samples a step over all devices"},
      {"split", &JobWords::split, "layers: blocks a stage, as 3,3"},
      {"micro-batches", &JobWords::micro_batches, "work a replica's samples off in so many pieces, gradients adding up"},
      {"bucket-mb", &JobWords::bucket_mb, "ddp: gradients are all-reduced in buckets of this size"},
      {"first-bucket-mb", &JobWords::first_bucket_mb, "ddp: size of the first bucket"},
      {"loss", &JobWords::loss, either(strategy::loss_names())},
      {"optimizer", &JobWords::optimizer, either(op::optimizer_names())},
      {"lr", &JobWords::lr, "learning rate (sgd 0.01, adam 0.001)"},
      {"momentum", &JobWords::momentum, "momentum of sgd"},
      {"weight-decay", &JobWords::weight_decay, "weight decay"},
      {"delay", &JobWords::delay, "inject a delay: before=forward|backward|update,rank=all|N,ms=10; several parted by ;"},
      {"link", &JobWords::link, "slow the links between devices down to bandwidth=1GB/s,latency=50us"},
      {"memory", &JobWords::memory, "memory of each device, as 512M (default: the machine's, shared evenly)"},
      {"backend", &JobWords::backend, "cpu (fast) or reference (plain loops, the judge)"},
      {"seed", &JobWords::seed, "seed of weights and data"},
      {"samples", &JobWords::samples, "samples in the data set; 0: the same batch every step"},
  };
  return fields;
}

void set_word(JobWords& words, std::string_view name, std::string value) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (const JobField& field : job_fields()) {
    if (field.name == wanted || (wanted == "global-batch" && field.name == "batch")) {
      words.*field.word = std::move(value);
      return;
    }
    names.push_back(field.name);
  }
  throw usage_error("a job has no '{}': choose {}", name, either(names));
}

Job::Job(const JobWords& words, cluster::Machine machine)
    : words_(words),
      machine_(std::move(machine)),
      model_(model::parse_model(words.model)),
      cluster_(make_cluster(words, machine_)),
      backend_(exec::make_backend(words.backend)),
      seed_(static_cast<std::uint64_t>(
          parse_integer(words.seed, "--seed", 0, std::numeric_limits<std::int64_t>::max()))),
      samples_(parse_integer(words.samples, "--samples", 0, std::numeric_limits<std::int64_t>::max())),
      request_{.model = model_,
               .cluster = cluster_,
               .strategy = strategy::strategy_by_name(words.strategy).name,
               .step = {.global_batch = parse_integer(words.batch, "--batch", 1, 1 << 30),
                        .loss = strategy::loss_by_name(words.loss),
                        .optimizer = make_optimizer(words)},
               .layout = make_layout(words),
               .target = backend_->target(),
               .delays = make_delays(words.delay)} {
  if (samples_ > 0 && samples_ < request_.step.global_batch) {
    throw usage_error("--samples is {}, but a batch alone takes {}", samples_, request_.step.global_batch);
  }
}

std::string Job::oversubscription() const {
  if (!cluster_.oversubscribed()) {
    return {};
  }
  std::set<int> cores;
  for (const cluster::Device& device : cluster_.devices()) {
    cores.insert(device.cores.begin(), device.cores.end());
  }
  return fmt::format(
      "{} devices share {} core{}: they take turns, so this run is real but slower than on cores of their own",
      cluster_.size(), cores.size(), cores.size() == 1 ? "" : "s");
}

}  // namespace baton::lab
