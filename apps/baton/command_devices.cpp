#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/devices/devices.h"
#include "baton/lab/json.h"
#include "baton/measure/environment.h"
#include "baton/report/table.h"
#include "commands.h"
#include "options.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

void show_devices(const std::string& devices, const std::string& json) {
  const cluster::Machine machine = cluster::probe();
  const cluster::Cluster cluster(devices::open_devices(devices, machine));
  if (!json.empty()) {
    namespace key = lab::key;
    std::vector<lab::Record> list;
    for (const cluster::Device& device : cluster.devices()) {
      lab::Record one{key::name(device.name), key::cores(device.cores), key::memory_bytes(device.memory)};
      if (device.gpu) {
        one.set(key::gpu, devices::find_gpus()[static_cast<std::size_t>(device.gpu->ordinal)].name);
        one.set(key::multiprocessors, device.gpu->multiprocessors);
      }
      list.push_back(std::move(one));
    }
    const lab::Record object{key::DevicesResult::devices(list), key::oversubscribed(cluster.oversubscribed()),
                             key::environment(measure::environment(machine))};
    write_output(json, object.json().dump(2) + "\n");
    return;
  }
  fmt::print("{} with {} core{}, {} of memory, {} of cache\n", machine.cpu, machine.cores.size(),
             machine.cores.size() == 1 ? "" : "s", to_text(machine.memory), to_text(machine.cache));
  if (devices::has_gpu()) {
    for (const cluster::Gpu& gpu : devices::find_gpus()) {
      fmt::print("{} with {} multiprocessors, {} of memory free\n", gpu.name, gpu.multiprocessors, to_text(gpu.memory));
    }
  }
  fmt::print("\n");
  report::Table table({"device", "where", "memory"});
  for (const cluster::Device& device : cluster.devices()) {
    table.row({device.name, describe_cores(device), to_text(device.memory)});
  }
  fmt::print("{}", table.text());
  if (cluster.oversubscribed()) {
    fmt::print("\nSome cores belong to several devices, which take turns on them.\n");
  }
}

}  // namespace

void add_devices_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("devices", "Show the devices of this machine, or those that --devices names");
  auto spec = std::make_shared<job::JobSpec>();
  auto json = std::make_shared<std::string>();
  add_job_flags(*command, *spec, {"devices"});
  command->add_option("--json", *json, "write them as JSON to a file, or to standard output with -")->type_name("FILE");
  command->footer("\nExamples:\n  baton devices --devices cpu:4\n  baton devices --devices cuda:0/4");
  command->callback([spec, json] { show_devices(spec->devices.text(), *json); });
}

}  // namespace baton::app
