#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/lab/rows.h"
#include "baton/lab/training_json.h"
#include "baton/report/table.h"
#include "baton/trace/chrome.h"
#include "commands.h"
#include "options.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct SimulateWords {
  lab::JobWords job;
  std::string json;
  std::string trace;
};

/// Shows what is being timed; an interrupt ends it, keeping what there is.
class CalibrationBar {
 public:
  explicit CalibrationBar(const Interrupt& interrupt) : interrupt_(interrupt) {}

  bool operator()(std::size_t done, std::size_t total, const std::string&) {
    if (!bar_) {
      fmt::print(stderr, "timing {} task{} of the plan by themselves; the times are kept for the next call\n", total,
                 total == 1 ? "" : "s");
      bar_.emplace("timing", static_cast<std::int64_t>(total), true);
    }
    bar_->show(static_cast<std::int64_t>(done));
    return !interrupt_.asked();
  }

 private:
  const Interrupt& interrupt_;
  std::optional<ProgressBar> bar_;
};

void print_prediction(const lab::Training& run, const std::vector<lab::Sensitivity>& sensitivities) {
  const Nanoseconds step = run.timed()[0];
  const auto batch = static_cast<double>(run.job().request().step.global_batch);
  fmt::print("\nStep time (simulated)\n  {}   {:.0f} samples/s\n\n{}", to_text(step),
             step.count == 0 ? 0 : batch * 1e9 / static_cast<double>(step.count), device_table(run));
  fmt::print("\nWhat would shorten the step\n");
  report::Table table({"change", "step", "shorter by"});
  for (const lab::Sensitivity& one : sensitivities) {
    table.row({one.knob, to_text(one.step), lab::percent(one.gain)});
  }
  fmt::print("{}", table.text());
}

void simulate(SimulateWords words) {
  if (words.job.cluster.empty()) {
    words.job.cluster = lab::this_machine;
  }
  check_writable(words.json);
  check_writable(words.trace);
  const Interrupt interrupt;
  CalibrationBar bar(interrupt);
  lab::Training run(words.job, cluster::probe(),
                    [&](std::size_t done, std::size_t total, const std::string& key) { return bar(done, total, key); });
  run.run(1, 0);
  const std::vector<lab::Sensitivity> sensitivities = lab::sensitivities(run.simulation(), run.timed()[0]);
  if (words.json != "-" && words.trace != "-") {
    fmt::print("{}, {} parameters, simulated on {}\n", run.plan().title(), run.job().model().parameter_count(),
               run.job().imagined() ? words.job.cluster : "this machine");
    fmt::print("costs: {}\n", run.simulation().cost_origin());
    print_prediction(run, sensitivities);
  }
  if (!words.json.empty()) {
    lab::Json result = lab::result_json(run, command_line());
    lab::Json list = lab::Json::array();
    for (const lab::Sensitivity& one : sensitivities) {
      list.push_back({{"change", one.knob}, {"time_per_step_ns", one.step.count}, {"gain", one.gain}});
    }
    result["sensitivity"] = list;
    write_output(words.json, result.dump(2) + "\n");
  }
  if (!words.trace.empty()) {
    write_output(words.trace, trace::to_chrome_json(run.plan(), run.trace()));
    if (words.json != "-" && words.trace != "-") {
      fmt::print("\nTrace: {}, to be opened in ui.perfetto.dev\n", words.trace);
    }
  }
}

/// In powers of ten, as data sheets have it.
std::string speed_text(double bytes_a_second) {
  return bytes_a_second > 0 ? fmt::format("{:.4g} GB/s", bytes_a_second * 1e-9) : "no limit";
}

void list_clusters() {
  fmt::print("machine is this machine, its tasks timed one by one; the others are made up from data sheets.\n\n");
  report::Table table({"name", "what it is"});
  table.row({std::string(lab::this_machine), cluster::probe().cpu});
  for (const cluster::Blueprint& one : cluster::catalogue()) {
    table.row({one.name, one.summary});
  }
  fmt::print("{}\nNAME+NETWORK joins nodes, as in pcie-4+ethernet-10. Files are under clusters/; write your own in their manner.\n",
             table.text());
}

void show_cluster(const std::string& name) {
  const cluster::Blueprint one = cluster::blueprint_by_name(name);
  fmt::print("{}: {}\n", one.name, one.summary);
  if (one.in_node > 0) {
    fmt::print("  {} {} a node, {} each, {} of memory bandwidth, launch {}\n", one.in_node, one.device.name,
               to_text(one.device.memory), speed_text(one.device.speed.memory_bandwidth), to_text(one.device.speed.launch));
    for (const auto& [type, rate] : one.device.speed.rates) {
      fmt::print("  {}: {}/s, of which large products reach {}\n", type, to_text(Flops(static_cast<std::int64_t>(rate))),
                 lab::percent(one.device.speed.efficiency));
    }
    fmt::print("  lanes {}\n", one.device.shared_lanes ? "shared: what computes also carries messages" : "apart");
  }
  if (one.wired) {
    fmt::print("  port of a device: {} each way, latency {}\n", speed_text(one.wiring.port.bandwidth),
               to_text(one.wiring.port.latency));
    if (one.wiring.bus > 0) {
      fmt::print("  bus of a node: {}\n", speed_text(one.wiring.bus));
    }
    if (one.networked) {
      fmt::print("  network: {} port{} a node of {} each way, latency {}\n", one.wiring.network_ports,
                 one.wiring.network_ports == 1 ? "" : "s", speed_text(one.wiring.network.bandwidth),
                 to_text(one.wiring.network.latency));
    }
    fmt::print("  collectives: {}\n", cluster::to_text(one.wiring.algorithm));
  }
}

struct CalibrateWords {
  lab::JobWords job;
  bool again = false;
};

void calibrate(const CalibrateWords& words) {
  const lab::Job job(words.job, cluster::probe());
  if (job.imagined()) {
    throw usage_error("only this machine can be calibrated: leave --cluster out");
  }
  const plan::Plan plan = job.compile();
  const Interrupt interrupt;
  CalibrationBar bar(interrupt);
  lab::Calibration calibration(job.machine(), job.cluster(), job.backend());
  const std::size_t timed = calibration.measure(
      plan, job.cluster(), job.backend(), words.again,
      [&](std::size_t done, std::size_t total, const std::string& key) { return bar(done, total, key); });
  const cost::Times& alone = calibration.times(plan, 1);
  const cost::Times& beside = calibration.times(plan, job.cluster().size());
  report::Table table({"task", "alone", fmt::format("{} at work", job.cluster().size()), "rate"});
  std::map<std::string, bool> shown;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const std::string key = cost::key_of(plan, TaskId(t), job.cluster());
    const auto time = alone.find(key);
    if (time == alone.end() || !shown.emplace(key, true).second) {
      continue;
    }
    const plan::TaskWork work = plan::work(plan, TaskId(t));
    const auto nanoseconds = static_cast<double>(std::max<std::int64_t>(1, time->second.count));
    table.row({key, to_text(time->second), to_text(beside.at(key)),
               plan::meeting_of(plan.tasks()[t]).valid() || work.flops.count == 0
                   ? "-"
                   : fmt::format("{:.3g} Gflop/s", static_cast<double>(work.flops.count) / nanoseconds)});
  }
  fmt::print("{}\n{} timed now; all are kept in {}\n", table.text(), timed, calibration.file().string());
}

}  // namespace

void add_simulate_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("simulate", "Say what a step would cost, on this machine or on one you do not have");
  auto words = std::make_shared<SimulateWords>();
  add_job_flags(*command, words->job);
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev");
  command->footer(
      "\nExamples:\n  baton simulate --strategy ddp --devices cpu:2\n"
      "  baton simulate --model mlp:dim=8192,depth=8 --strategy ddp --cluster dgx-a100 --devices 64 --batch 4096\n"
      "  baton simulate --strategy layers --model first-split --cluster pcie-5 --devices 2 --what-if link=0.5x");
  command->callback([words] { simulate(*words); });
}

void add_clusters_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("clusters", "List the machines that can be simulated, or show one");
  auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "NAME, NAME+NETWORK or a file");
  command->footer("\nExamples:\n  baton clusters\n  baton clusters dgx-a100+ethernet-100");
  command->callback([name] { name->empty() ? list_clusters() : show_cluster(*name); });
}

void add_calibrate_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("calibrate", "Time each distinct task of a job by itself on this machine");
  auto words = std::make_shared<CalibrateWords>();
  add_job_flags(*command, words->job);
  command->add_flag("--again", words->again, "also what has been timed before");
  command->footer("\nExample:\n  baton calibrate --model mlp:dim=1024,depth=2 --strategy ddp --devices cpu:2");
  command->callback([words] { calibrate(*words); });
}

}  // namespace baton::app
