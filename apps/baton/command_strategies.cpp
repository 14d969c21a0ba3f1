#include <fmt/format.h>

#include <functional>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/plan/verify.h"
#include "baton/report/table.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/strategy.h"
#include "commands.h"
#include "terminal.h"

namespace baton::app {
namespace {

cluster::Cluster sample_cluster(std::size_t devices) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < devices; ++d) {
    list.push_back({fmt::format("cpu:{}", d), {static_cast<int>(d)}, Bytes(1 << 30)});
  }
  return cluster::Cluster(std::move(list));
}

/// Something that can be added to a schedule.
struct Addition {
  std::string name;
  std::function<void(strategy::Layout&)> add;
};

const std::vector<Addition>& additions() {
  static const std::vector<Addition> list{
      {"dp 2", [](strategy::Layout& layout) { layout.dp = 2; }},
      {"tp 2", [](strategy::Layout& layout) { layout.tp = 2; }},
      {"dp 2 tp 2", [](strategy::Layout& layout) { layout.dp = layout.tp = 2; }},
      {"dp 2 zero 1", [](strategy::Layout& layout) { layout.dp = 2, layout.zero = 1; }},
      {"dp 2 zero 2", [](strategy::Layout& layout) { layout.dp = 2, layout.zero = 2; }},
      {"dp 2 zero 3", [](strategy::Layout& layout) { layout.dp = 2, layout.zero = 3; }},
      {"recompute", [](strategy::Layout& layout) { layout.recompute = strategy::Recompute::all; }},
  };
  return list;
}

/// "yes" if a sample of the combination compiles and verifies; otherwise "no" and the number of the reason, which is kept.
std::string tried(const schedule::Schedule& schedule, const Addition& addition, std::vector<std::string>& reasons) {
  const model::Model model = model::parse_model("mlp:dim=16,depth=16");
  strategy::Layout layout;
  layout.pp = 4;
  layout.schedule = schedule.name;
  addition.add(layout);
  const cluster::Cluster cluster = sample_cluster(
      static_cast<std::size_t>(4 * std::max<std::int64_t>(1, layout.dp) * std::max<std::int64_t>(1, layout.tp)));
  try {
    plan::require(plan::verify(strategy::compile({.model = model, .cluster = cluster, .strategy = "product", .layout = layout})));
    return "yes";
  } catch (const Error& error) {
    reasons.push_back(fmt::format("{} with {}: {}", schedule.name, addition.name, error.what()));
    return fmt::format("no ({})", reasons.size());
  }
}

void show_strategies() {
  report::Table named({"strategy", "what it does"});
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    named.row({strategy.name(), strategy.summary()});
  }
  std::vector<std::string> head{"schedule"};
  for (const Addition& addition : additions()) {
    head.push_back(addition.name);
  }
  report::Table table(head);
  std::vector<std::string> reasons;
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    std::vector<std::string> row{schedule.name};
    for (const Addition& addition : additions()) {
      row.push_back(tried(schedule, addition, reasons));
    }
    table.row(row);
  }
  fmt::print(
      "{}\nCombinations that work (each was compiled and checked just now, on four pipeline devices with two micro-batches per "
      "device):\n\n{}\n",
      named.text(), table.text());
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    fmt::print("({}) {}\n", i + 1, reasons[i]);
  }
  fmt::print(
      "single (one device) and dp (one owner) cannot be combined. ZeRO needs replicas (--dp). Tensors are split in pairs of "
      "Linear layers, so a stage needs at least two blocks.\n");
}

}  // namespace

void add_strategies_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("strategies", "List the ways of splitting a step, and which can be combined");
  command->footer(
      "\nExample:\n  baton train --model mlp:dim=256,depth=8 --devices cpu:8 --dp 2 --pp 2 --tp 2 --zero 1 --schedule 1f1b "
      "--micro-batches 8");
  command->callback([] { show_strategies(); });
}

}  // namespace baton::app
