#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/zoo.h"

namespace baton::app {
namespace {

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
  if (!words.split.empty()) {
    for (const std::string_view part : split(words.split, ',')) {
      layout.split.push_back(parse_integer(part, "a stage of --split", 1, 1 << 20));
    }
  }
  return layout;
}

}  // namespace

void add_job_flags(CLI::App& command, JobWords& words) {
  std::vector<std::string> forms;
  for (const model::Kind& kind : model::zoo()) {
    forms.push_back(kind.forms);
  }
  command.add_option("-m,--model", words.model, either(forms))->capture_default_str();
  command.add_option("-s,--strategy", words.strategy, list_strategies())->capture_default_str();
  command.add_option("-d,--devices", words.devices, "cpu (one device), cpu:4 (four), cpu:0-3,4-7 (by cores)")
      ->capture_default_str();
  command.add_option("-b,--batch,--global-batch", words.batch, "global batch: samples a step over all devices")
      ->capture_default_str();
  command.add_option("--split", words.split, "layers: blocks a stage, as 3,3");
  command.add_option("--bucket-mb", words.bucket_mb, "ddp: gradients are all-reduced in buckets of this size")
      ->capture_default_str();
  command.add_option("--first-bucket-mb", words.first_bucket_mb, "ddp: size of the first bucket")->capture_default_str();
  command.add_option("--loss", words.loss, either(strategy::loss_names()))->capture_default_str();
  command.add_option("--optimizer", words.optimizer, either(op::optimizer_names()))->capture_default_str();
  command.add_option("--lr", words.lr, "learning rate (sgd 0.01, adam 0.001)");
  command.add_option("--momentum", words.momentum, "momentum of sgd");
  command.add_option("--weight-decay", words.weight_decay, "weight decay");
  command.add_option("--delay", words.delays, "inject a delay: before=forward|backward|update,rank=all|N,ms=10; repeatable")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--link", words.link, "slow the links between devices down to bandwidth=1GB/s,latency=50us");
  command.add_option("--memory", words.memory, "memory of each device, as 512M (default: the machine's, shared evenly)");
  command.add_option("--backend", words.backend, "cpu (fast) or reference (plain loops, the judge)")->capture_default_str();
}

Job::Job(const JobWords& words)
    : machine_(cluster::probe()),
      model_(model::parse_model(words.model)),
      cluster_(make_cluster(words, machine_)),
      backend_(exec::make_backend(words.backend)),
      request_{.model = model_,
               .cluster = cluster_,
               .strategy = strategy::strategy_by_name(words.strategy).name,
               .step = {.global_batch = parse_integer(words.batch, "--batch", 1, 1 << 30),
                        .loss = strategy::loss_by_name(words.loss),
                        .optimizer = make_optimizer(words)},
               .layout = make_layout(words),
               .target = backend_->target()} {
  for (const std::string& delay : words.delays) {
    request_.delays.push_back(strategy::parse_delay(delay));
  }
}

plan::Limits Job::limits(const plan::Plan& plan) const {
  plan::Limits limits{[&](const plan::Task& task) {
                        return std::holds_alternative<plan::Delay>(task.action) || plan::meeting_of(task).valid() ||
                               backend_->has_kernel(plan, task);
                      },
                      {}};
  for (const cluster::Device& device : cluster_.devices()) {
    limits.memory.push_back(device.memory);
  }
  return limits;
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
      "{} devices share {} core{}: they take turns, so this run is real but slower than on a core each", cluster_.size(),
      cores.size(), cores.size() == 1 ? "" : "s");
}

std::string describe_cores(const cluster::Device& device) {
  return fmt::format("{} {}", device.cores.size() == 1 ? "core" : "cores", fmt::join(device.cores, ","));
}

}  // namespace baton::app
