#include <fmt/format.h>

#include <map>
#include <optional>
#include <string_view>

#include "baton/cluster/blueprint.h"
#include "baton/cluster/machine.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"
#include "baton/training/job.h"
#include "commands.h"

namespace baton::app {
namespace {

/// A speed in powers of ten, like those of data sheets.
std::string speed_text(double bytes_a_second) {
  return bytes_a_second > 0 ? fmt::format("{:.4g} GB/s", bytes_a_second * 1e-9) : "no limit";
}

void list_clusters() {
  fmt::print("`machine` is this machine, with tasks timed one by one. The figures of the others are from data sheets.\n\n");
  report::Table table({"name", "what it is"});
  table.row({std::string(job::this_machine), cluster::probe().cpu});
  for (const cluster::Blueprint& one : cluster::catalogue()) {
    table.row({one.name, one.summary});
  }
  fmt::print(
      "{}\nNAME+NETWORK joins several nodes by a network, for example pcie-4+ethernet-10. Each machine is a file in clusters/; a "
      "file of your own works too.\n",
      table.text());
}

void show_cluster(const std::string& name) {
  const cluster::Blueprint one = cluster::blueprint_by_name(name);
  fmt::print("{}: {}\n", one.name, one.summary);
  if (one.in_node > 0) {
    fmt::print("  {} {} per node, each with {} of memory at {}; {} per kernel launch\n", one.in_node, one.device.name,
               to_text(one.device.memory), speed_text(one.device.speed.memory_bandwidth), to_text(one.device.speed.launch));
    std::map<std::string_view, double> rates;  // by name, in the order of the alphabet
    for (const cluster::RateType type : cluster::all_rate_types) {
      if (const std::optional<double> rate = one.device.speed.rates[type]) {
        rates.emplace(cluster::to_text(type), *rate);
      }
    }
    for (const auto& [type, rate] : rates) {
      fmt::print("  {}: {}/s, of which large products reach {}\n", type, to_text(Flops(static_cast<std::int64_t>(rate))),
                 lab::percent(one.device.speed.efficiency));
    }
    fmt::print("  lanes {}\n",
               one.device.shared_lanes ? "shared: computing and messages take turns" : "separate: computing and messages overlap");
  }
  if (one.wired) {
    fmt::print("  port per device: {} each way, latency {}\n", speed_text(one.wiring.port.bandwidth),
               to_text(one.wiring.port.latency));
    if (one.wiring.bus > 0) {
      fmt::print("  bus per node: {}\n", speed_text(one.wiring.bus));
    }
    if (one.networked) {
      fmt::print("  network: {} port{} per node, {} each way, latency {}\n", one.wiring.network_ports,
                 one.wiring.network_ports == 1 ? "" : "s", speed_text(one.wiring.network.bandwidth),
                 to_text(one.wiring.network.latency));
    }
    fmt::print("  collectives: {}\n", cluster::to_text(one.wiring.algorithm));
  }
}

}  // namespace

void add_clusters_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("clusters", "List the machines that can be simulated, or show one");
  auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "NAME, NAME+NETWORK or a file")->type_name("CLUSTER");
  command->footer("\nExamples:\n  baton clusters\n  baton clusters dgx-a100+ethernet-100");
  command->callback([name] { name->empty() ? list_clusters() : show_cluster(*name); });
}

}  // namespace baton::app
