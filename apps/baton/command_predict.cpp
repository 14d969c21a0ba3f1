#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/environment.h"
#include "baton/lab/prediction.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"
#include "commands.h"
#include "options.h"
#include "terminal.h"

namespace baton::app {
namespace {

using lab::Json;

struct PredictWords {
  lab::JobWords job;
  std::vector<std::string> sets;
  std::string limit = "2s";
  std::string json;
};

void predict(const PredictWords& words, int& exit_code) {
  if (!words.job.cluster.empty() || !words.job.what_if.empty() || words.job.fold != lab::JobWords{}.fold) {
    throw usage_error("predict holds this machine's simulation against its measurement: leave --cluster, --what-if and --fold out");
  }
  lab::AxisValues axes;
  for (const std::string& set : words.sets) {
    lab::parse_axis_values(set, axes);
  }
  if (axes.empty()) {
    axes["strategy"] = {words.job.strategy.empty() ? "single" : words.job.strategy};
  }
  check_writable(words.json);
  const lab::Experiment experiment = lab::prediction(words.job, axes);
  const std::vector<lab::Point> points = lab::points(experiment, lab::Preset::quick, {});
  lab::Settings settings{.machine = cluster::probe()};
  settings.time_limit = parse_time(words.limit, "--time-limit");
  const Interrupt interrupt;
  ProgressBar bar("simulating and measuring", 1000, true);
  const std::vector<Json> records = lab::measure(
      experiment, points, settings, {}, [](const lab::Point&, const Json&, bool) {},
      [&](double done, const std::string&) {
        bar.show(static_cast<std::int64_t>(done * 1000));
        return !interrupt.asked();
      });
  bar.clear();
  std::vector<Json> rows;
  Json refused = Json::array();
  report::Table table({"point", "simulated", "measured", "error"});
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (records[i].is_null()) {
      continue;
    }
    Json row = records[i];
    row["point"] = points[i];
    if (row.contains("reason")) {
      table.row({lab::to_words(points[i]), "-", "-", row["reason"].get<std::string>()});
      refused.push_back(row);
      continue;
    }
    table.row({lab::to_words(points[i]), to_text(lab::time_of(row, "simulated_ns")), to_text(lab::time_of(row)),
               fmt::format("{:+.1f} %", 100 * lab::number(row, "error"))});
    rows.push_back(row);
  }
  const lab::Accuracy accuracy = lab::accuracy(rows);
  if (words.json != "-") {
    fmt::print("{}\n", table.text());
    if (accuracy.points > 0) {
      fmt::print("Over {} point{} the median of the absolute errors is {}, the largest {}.\n", accuracy.points,
                 accuracy.points == 1 ? "" : "s", lab::percent(accuracy.median_error), lab::percent(accuracy.largest_error));
    }
    if (accuracy.pairs > 0) {
      fmt::print("Of {} pair{} of strategies that differ by more than the noise, {} {} in the order that was predicted.\n",
                 accuracy.pairs, accuracy.pairs == 1 ? "" : "s", accuracy.in_order, accuracy.in_order == 1 ? "is" : "are");
    }
  }
  if (!words.json.empty()) {
    const Json result{{"command", command_line()},
                      {"points", rows},
                      {"refused", refused},
                      {"median_error", accuracy.median_error},
                      {"largest_error", accuracy.largest_error},
                      {"pairs", accuracy.pairs},
                      {"pairs_in_order", accuracy.in_order},
                      {"environment", lab::environment(settings.machine)}};
    write_output(words.json, result.dump(2) + "\n");
  }
  if (interrupt.asked()) {
    fmt::print(stderr, "baton: interrupted; what is shown is of the points that were reached\n");
    exit_code = 130;
  }
}

}  // namespace

void add_predict_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("predict",
                                             "Simulate on this machine and measure, side by side, with the error of each");
  auto words = std::make_shared<PredictWords>();
  add_job_flags(*command, words->job);
  command->add_option("--set", words->sets, "values for a flag, as strategy=ddp,layers; every combination is taken; repeatable")
      ->allow_extra_args(false);
  command->add_option("--time-limit", words->limit, "for measuring one point")->capture_default_str();
  command->add_option("--json", words->json, "write the points to a file, or to standard output with -");
  command->footer(
      "\nExamples:\n  baton predict --strategy ddp --devices cpu:2\n"
      "  baton predict --set strategy=single,ddp,layers --set 'model=mlp:dim=512,depth=4;mlp:dim=1024,depth=2' --devices cpu:2");
  command->callback([words, &exit_code] { predict(*words, exit_code); });
}

}  // namespace baton::app
