#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/measure/environment.h"
#include "baton/predict/prediction.h"
#include "baton/report/report.h"
#include "commands.h"
#include "options.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

using lab::Json;

struct PredictWords {
  job::JobSpec job;
  std::vector<std::string> sets;
  Nanoseconds limit{2'000'000'000};
  std::string json;
};

void predict(PredictWords words, int& exit_code) {
  if (!words.job.data.empty()) {
    throw usage_error("predict compares times of a step, for which its data does not matter: leave out --data");
  }
  if (!words.job.cluster.empty() || words.job.what_if.changes() || words.job.fold != job::Fold::automatic) {
    throw usage_error(
        "predict compares a simulation of this machine with a measurement: leave out --cluster, --what-if and --fold");
  }
  lab::AxisValues axes;
  for (const std::string& set : words.sets) {
    lab::parse_axis_values(set, axes);
  }
  if (axes.empty()) {
    axes[lab::key::strategy] = {words.job.strategy.value_or("single").name()};
  }
  for (const auto& [name, values] : axes) {
    for (const job::FieldValue& value : values) {
      job::JobSpec tried = words.job;
      job::set_field(tried, name, value);  // a value that there is not is refused before anything is measured
    }
  }
  settle_outputs({&words.json});
  const auto experiment = std::make_shared<const lab::Experiment>(predict::prediction(words.job, axes));
  const std::vector<lab::Point> points = lab::points(*experiment, lab::Preset::quick, {});
  lab::Settings settings{.machine = cluster::probe()};
  settings.time_limit = words.limit;
  const Interrupt interrupt;
  ProgressBar bar("simulating and measuring", 1000, true, ProgressBar::percent);
  std::vector<lab::Record> records = lab::measure(
      *experiment, points, settings, {}, [](const lab::Point&, const lab::Record&, bool) {},
      [&](double done, const std::string&) {
        bar.show(static_cast<std::int64_t>(done * 1000));
        return !interrupt.asked();
      });
  bar.clear();
  interrupt.begin_saving();
  const lab::Result result = lab::conclude(experiment, points, std::move(records), command_line(), lab::Preset::quick);
  if (words.json != "-") {
    fmt::print("{}", report::to_terminal(result));
  }
  if (!words.json.empty()) {
    Json object = report::to_json(result);
    object["environment"] = measure::environment(settings.machine);
    write_output(words.json, object.dump(2) + "\n");
  }
  if (interrupt.asked()) {
    fmt::print(stderr, "baton: interrupted; only the points measured so far are shown\n");
    exit_code = interrupt.exit_code();
  }
}

}  // namespace

void add_predict_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("predict", "Simulate steps on this machine, measure them, and show the error of each");
  auto words = std::make_shared<PredictWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, data_flags());
  hide_job_flags(*command, {"cluster", "software", "what-if", "fold"});
  command
      ->add_option("--set", words->sets,
                   "values of an option, for example strategy=ddp,layers; may be given several times; all combinations are run")
      ->type_name("AXIS=VALUES")
      ->allow_extra_args(false);
  add_time(*command, "--time-limit", words->limit, Nanoseconds(0), "time for measuring one point");
  command->add_option("--json", words->json, "write the points to a file, or to standard output with -")->type_name("FILE");
  command->footer(
      "\nExamples:\n  baton predict --strategy ddp --devices cpu:2\n"
      "  baton predict --set strategy=single,ddp,layers --set 'model=mlp:dim=512,depth=4;mlp:dim=1024,depth=2' --devices cpu:2");
  command->callback([words, &exit_code] { predict(*words, exit_code); });
}

}  // namespace baton::app
