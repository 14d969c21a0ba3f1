#include <fmt/format.h>

#include "baton/base/text.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"
#include "baton/trace/chrome.h"
#include "baton/training/training_json.h"
#include "baton/training/training_record.h"
#include "calibration_bar.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct SimulateWords {
  job::JobSpec job;
  std::string json;
  std::string trace;
};

std::string three_digits(double value) { return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

/// "5120 samples/s"; of sequences of tokens "5.76 samples/s, 47.1 thousand tokens/s".
std::string throughput(const training::Training& run) {
  const double samples = training::samples_per_s(run);
  const model::Model& model = run.job().model();
  if (!model.blocks().front().values.front().integers) {
    return fmt::format("{:.0f} samples/s", samples);
  }
  const double tokens = samples * static_cast<double>(model.input().elements());
  const auto [unit, name] = tokens >= 999.5e3 ? std::pair(1e6, " million")
                            : tokens >= 999.5 ? std::pair(1e3, " thousand")
                                              : std::pair(1.0, "");
  return fmt::format("{} samples/s, {}{} tokens/s", three_digits(samples), three_digits(tokens / unit), name);
}

void print_prediction(const training::Training& run, const std::vector<job::Sensitivity>& sensitivities) {
  const Nanoseconds step = run.timed()[0];
  fmt::print("\nStep time (simulated)\n  {}   {}\n\n{}", to_text(step), throughput(run), device_table(run));
  fmt::print("\nWhat would shorten the step\n");
  report::Table table({"change", "step", "shorter by"});
  for (const job::Sensitivity& one : sensitivities) {
    table.row({one.knob, to_text(one.step), lab::percent(one.gain)});
  }
  fmt::print("{}", table.text());
}

void simulate(SimulateWords words) {
  if (words.job.cluster.empty()) {
    words.job.cluster = job::this_machine;
  }
  settle_outputs({&words.json, &words.trace});
  const Interrupt interrupt;
  CalibrationBar bar(interrupt);
  training::Training run(words.job, cluster::probe(),
                         [&](std::size_t done, std::size_t total, const std::string& key) { return bar(done, total, key); });
  run.run(1, 0);
  const std::vector<job::Sensitivity> sensitivities = training::sensitivities(run.simulation(), run.timed()[0]);
  if (words.json != "-" && words.trace != "-") {
    fmt::print("{}, {} parameters, simulated on {}\n", run.plan().title(), run.job().model().parameter_count(),
               run.job().imagined() ? words.job.cluster : "this machine");
    if (run.job().imagined() && words.job.devices.text().find(':') != std::string::npos) {
      fmt::print("note: {} names devices of this machine; {} devices of {} are simulated instead\n",
                 printable(words.job.devices.text()), run.job().cluster().size(), words.job.cluster);
    }
    fmt::print("{}costs: {}\n", unused_note(run.job()), run.simulation().cost_origin());
    print_prediction(run, sensitivities);
  }
  if (!words.json.empty()) {
    lab::Json result = training::result_json(run, command_line());
    lab::Json list = lab::Json::array();
    for (const job::Sensitivity& one : sensitivities) {
      list.push_back({{"change", one.knob}, {lab::key::time_per_step_ns.name, one.step.count}, {"gain", one.gain}});
    }
    result["sensitivity"] = list;
    write_output(words.json, result.dump(2) + "\n");
  }
  if (!words.trace.empty()) {
    write_output(words.trace, trace::to_chrome_json(run.plan(), run.trace()));
    if (words.json != "-" && words.trace != "-") {
      fmt::print("\nTrace: {}; open it in ui.perfetto.dev\n", words.trace);
    }
  }
}

}  // namespace

void add_simulate_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("simulate", "Simulate a step, on this machine or on one you do not have");
  auto words = std::make_shared<SimulateWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, data_flags());
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -")->type_name("FILE");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev")->type_name("FILE");
  command->footer(
      "\nExamples:\n  baton simulate --strategy ddp --devices cpu:2\n"
      "  baton simulate --model mlp:dim=8192,depth=8 --strategy ddp --cluster dgx-a100 --devices 64 --batch 4096\n"
      "  baton simulate --strategy layers --model first-split --cluster pcie-5 --devices 2 --what-if link=0.5x");
  command->callback([words] { simulate(*words); });
}

}  // namespace baton::app
