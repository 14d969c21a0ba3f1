#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/cost/measured.h"
#include "baton/lab/part_slowdown.h"
#include "baton/measure/calibration.h"
#include "baton/report/table.h"
#include "calibration_bar.h"
#include "commands.h"
#include "options.h"
#include "signals.h"

namespace baton::app {
namespace {

struct CalibrateWords {
  job::JobSpec job;
  bool again = false;
};

void calibrate(const CalibrateWords& words) {
  const training::Job job(words.job, cluster::probe());
  if (job.data() != nullptr) {
    throw usage_error("calibrate times tasks by themselves, which read no data: leave out --data");
  }
  if (job.imagined()) {
    throw usage_error("only this machine can be calibrated: leave --cluster out");
  }
  const plan::Plan plan = job.compile();
  const Interrupt interrupt;
  CalibrationBar bar(interrupt);
  measure::Calibration calibration(job.machine(), job.cluster(), job.backend());
  const cost::TaskKeys keys = calibration.keys(plan, job.cluster());
  const std::size_t timed = calibration.measure(
      plan, keys, job.cluster(), job.backend(), words.again,
      [&](std::size_t done, std::size_t total, const std::string& key) { return bar(done, total, key); });
  const std::string where = calibration.unkept().empty() ? fmt::format("all are kept in {}", calibration.file().string())
                                                         : fmt::format("none can be kept: {}", calibration.unkept());
  if (interrupt.asked()) {
    throw Stopped(fmt::format("interrupted after {} tasks were timed; {}", timed, where));
  }
  const cost::Times& alone = calibration.times(1);
  const cost::Times& beside = calibration.times(job.cluster().size());
  report::Table table({"task", "alone", fmt::format("with all {} busy", job.cluster().size()), "rate"});
  std::map<std::string, bool> shown;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const std::string& key = keys[TaskId(t)];
    const auto time = alone.find(key);
    if (time == alone.end() || !shown.emplace(key, true).second) {
      continue;
    }
    const plan::TaskWork work = plan::work(plan, TaskId(t));
    const auto nanoseconds = static_cast<double>(std::max<std::int64_t>(1, time->second.count));
    table.row({key, to_text(time->second), to_text(beside.at(key)),
               plan::meeting_of(plan.tasks()[t]).valid() || work.flops.count == 0
                   ? "-"
                   : fmt::format("{:.3g} GFLOP/s", static_cast<double>(work.flops.count) / nanoseconds)});
  }
  const std::optional<std::string> crowded = lab::calibrated_part_slowdown(plan, job.cluster(), keys, alone, beside);
  fmt::print("{}\n{}{} tasks timed now; {}\n", table.text(), crowded ? *crowded + "\n\n" : "", timed, where);
}

}  // namespace

void add_calibrate_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("calibrate", "Time each distinct task of a job by itself on this machine");
  auto words = std::make_shared<CalibrateWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, data_flags());
  command->add_flag("--again", words->again, "also time tasks that have been timed before");
  command->footer("\nExample:\n  baton calibrate --model mlp:dim=1024,depth=2 --strategy ddp --devices cpu:2");
  command->callback([words] { calibrate(*words); });
}

}  // namespace baton::app
