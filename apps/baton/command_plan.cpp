#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cost/roofline.h"
#include "baton/job/chakra.h"
#include "baton/job/sentences.h"
#include "baton/lab/json.h"
#include "baton/plan/dot.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/report/table.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/text.h"
#include "commands.h"
#include "options.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct PlanWords {
  job::JobSpec job;
  std::string file;
  bool text = false;
  bool dot = false;
  bool verify = false;
  bool grid = false;
  bool csv = false;
  std::vector<std::string> exported;  // format and file
};

/// "0-2", "3", "0,4-5": the blocks whose forward a device computes.
std::string blocks_of(const plan::Plan& plan, DeviceId device) {
  std::set<std::int32_t> blocks;
  for (const plan::Task& task : plan.tasks()) {
    if (task.device == device && task.lane == plan::Lane::compute && task.labels.block >= 0 &&
        task.labels.phase != plan::Phase::update && !std::holds_alternative<plan::Delay>(task.action)) {
      blocks.insert(task.labels.block);
    }
  }
  if (blocks.empty()) {
    return "none";
  }
  std::string ranges;
  for (auto next = blocks.begin(); next != blocks.end();) {
    const std::int32_t first = *next;
    std::int32_t last = first;
    while (++next != blocks.end() && *next == last + 1) {
      last = *next;
    }
    ranges += fmt::format("{}{}", ranges.empty() ? "" : ",", first);
    ranges += first == last ? "" : fmt::format("-{}", last);
  }
  return ranges;
}

std::string summary(const plan::Plan& plan, const plan::Verdict& verdict) {
  const std::vector<plan::Totals> totals = plan::totals_by_device(plan);
  plan::Totals all;
  report::Table table({"device", "blocks", "tasks", "work", "transfers", "sent", "received", "memory"});
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const plan::Totals& one = totals[d];
    table.row({plan.devices()[d], blocks_of(plan, DeviceId(d)), fmt::format("{}", one.tasks), to_text(one.work.flops),
               fmt::format("{}", one.transfers), to_text(one.work.sent), to_text(one.work.received),
               to_text(verdict.memory.peak[d])});
    all += one;
  }
  std::size_t collectives = 0;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const auto members = plan.members(MeetingId(m));
    collectives += !members.empty() && std::holds_alternative<plan::Collective>(plan[members[0]].action);
  }
  return fmt::format("{}\n\n{}\n{} transfer{} ({} in the forward), {} collective{}, {} sent and {} of work per step\n",
                     plan.title(), table.text(), all.transfers, all.transfers == 1 ? "" : "s", all.transfers_forward, collectives,
                     collectives == 1 ? "" : "s", to_text(all.work.sent), to_text(all.work.flops));
}

/// Prints the schedule: the actions of each device in time, and the idle share in theory.
void show_grid(const training::Job& job, bool csv) {
  if (!job::is_pipeline(job.request())) {
    throw usage_error(
        "strategy {} has no pipeline here, so there is no grid to draw: choose one with --strategy or --schedule, on at least two "
        "devices",
        job.request().strategy.name());
  }
  const schedule::Grid grid = *strategy::grid_of(job.request());
  if (csv) {
    write_output("-", schedule::to_csv(grid));
    return;
  }
  const schedule::Timing timing = schedule::replay(grid);
  const std::vector<std::int64_t> alive = schedule::in_flight(grid);
  fmt::print(
      "{}\nThe devices are idle for {:.1f} % of the step, if transfers are free, stages are equal and a backward takes as long as "
      "two forwards. Row by row they hold at most {} activations at once, one per micro-batch and stage.\n",
      schedule::to_text(grid), 100 * timing.idle_share(), fmt::join(alive, ", "));
}

/// Writes FILE.0.et, FILE.1.et and so on, one per device, and FILE.groups.json with the devices of each group of collectives.
void export_chakra(const plan::Plan& plan, const training::Job* job, const std::string& file) {
  std::function<Nanoseconds(TaskId)> duration;
  std::optional<cost::Roofline> roofline;
  if (job != nullptr && job->imagined()) {
    roofline.emplace(job->cluster(), job->software());
    duration = [&](TaskId task) { return roofline->duration(plan, task); };
  }
  const job::Chakra chakra = job::to_chakra(plan, duration);
  for (std::size_t d = 0; d < chakra.devices.size(); ++d) {
    write_output(fmt::format("{}.{}.et", file, d), chakra.devices[d]);
  }
  write_output(file + ".groups.json", lab::Json(chakra.groups).dump() + "\n");
  fmt::print("{}\n{} execution traces: {}.0.et to {}.{}.et; groups of collectives: {}.groups.json\n", plan.title(),
             chakra.devices.size(), file, file, chakra.devices.size() - 1, file);
}

void show_plan(const PlanWords& words) {
  std::optional<training::Job> job;
  if (words.file.empty()) {
    job.emplace(words.job, cluster::probe());
  }
  if (words.text + words.dot + words.verify + words.grid + words.csv + !words.exported.empty() > 1) {
    throw usage_error("choose one of --text, --dot, --verify, --grid, --csv and --export");
  }
  if (!words.exported.empty()) {
    index_of_name({"chakra"}, words.exported[0], "format of --export");
  }
  if (words.grid || words.csv) {
    if (!job) {
      throw usage_error("--grid draws the schedule of a job, and a plan read with --file has none: give only one of them");
    }
    plan::require(plan::verify(job->compile()));
    show_grid(*job, words.csv);
    return;
  }
  const plan::Plan plan = job ? job->compile()
                              : plan::parse(read_file(words.file, "the plan " + words.file, Bytes(std::int64_t{32} << 20)));
  if (words.text) {
    write_output("-", plan::to_text(plan));
    return;
  }
  if (words.dot) {
    write_output("-", plan::to_dot(plan));
    return;
  }
  const plan::Verdict verdict = plan::verify(plan, job ? job->limits(plan) : plan::Limits{});
  if (words.verify) {
    for (const plan::Violation& violation : verdict.violations) {
      fmt::print("{}: {}\n", plan::to_text(violation.rule), violation.text);
    }
    if (!verdict.holds()) {
      throw failure("the plan breaks {} rule{}", verdict.violations.size(), verdict.violations.size() == 1 ? "" : "s");
    }
    fmt::print("{}\n", job::correct_sentence(plan, job.has_value()));
    return;
  }
  plan::require(verdict);
  if (!words.exported.empty()) {
    export_chakra(plan, job ? &*job : nullptr, words.exported[1]);
    return;
  }
  fmt::print("{}", summary(plan, verdict));
  if (job) {
    fmt::print("{}", unused_note(*job));
  }
}

}  // namespace

void add_plan_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("plan", "Show what a step would do: stages, transfers, bytes, memory");
  auto words = std::make_shared<PlanWords>();
  add_job_flags(*command, words->job);
  command->add_option("--file", words->file, "read a plan from a text file instead of compiling one")->type_name("FILE");
  command->add_flag("--text", words->text, "print the whole plan as text, which --file reads back");
  command->add_flag("--dot", words->dot, "print the graph for Graphviz");
  command->add_flag("--grid", words->grid, "draw the schedule, one row per device of the pipeline");
  command->add_flag("--csv", words->csv, "print the schedule in PyTorch's notation, which --schedule FILE reads back");
  command->add_flag("--verify", words->verify, "check the plan against its rules and print every violation");
  command
      ->add_option("--export", words->exported,
                   "chakra FILE: write execution traces for network simulators, FILE.0.et and so on, one per device")
      ->expected(2)
      ->type_name("FORMAT FILE");
  command->footer(
      "\nExamples:\n  baton plan --model mlp:dim=1024,depth=6 --strategy layers --devices cpu:2\n"
      "  baton plan --strategy ddp --devices cpu:2 --dot | dot -Tsvg > plan.svg");
  command->callback([words] { show_plan(*words); });
}

}  // namespace baton::app
