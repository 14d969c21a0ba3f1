#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "baton/base/error.h"
#include "baton/exec/executor.h"
#include "baton/trace/analysis.h"
#include "baton/trace/chrome.h"
#include "commands.h"
#include "environment.h"
#include "options.h"
#include "terminal.h"

namespace baton::app {
namespace {

using nlohmann::ordered_json;

struct TrainWords {
  JobWords job;
  std::string steps = "30";
  std::string warmup = "5";
  std::string seed = "0";
  std::string samples = "0";
  std::string json;
  std::string trace;
  bool quiet = false;
};

std::atomic<bool> interrupted{false};

/// Everything that is said about a run is made from these.
struct Report {
  const Job& job;
  const plan::Plan& plan;
  const exec::RunResult& result;
  std::int64_t warmup;
  std::uint64_t seed;

  std::span<const Nanoseconds> timed() const {
    return std::span(result.step_times).subspan(std::min<std::size_t>(warmup, result.step_times.size()));
  }
  trace::Spread spread() const { return trace::spread(timed()); }

  /// Where the traced steps went, in all.
  std::vector<trace::DeviceTime> device_times(Nanoseconds& total) const {
    std::vector<trace::DeviceTime> sums(plan.devices().size());
    for (const trace::StepTrace& step : result.trace.steps) {
      const std::vector<trace::DeviceTime> times = trace::device_times(plan, step);
      for (std::size_t d = 0; d < sums.size(); ++d) {
        sums[d] += times[d];
      }
      total += step.duration;
    }
    return sums;
  }
};

double share(Nanoseconds part, Nanoseconds whole) {
  return whole.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(whole.count);
}

ordered_json to_json(const Report& report) {
  const trace::Spread spread = report.spread();
  Nanoseconds total;
  const std::vector<trace::DeviceTime> times = report.device_times(total);
  const std::vector<plan::Totals> totals = plan::totals_by_device(report.plan);
  ordered_json devices = ordered_json::array();
  plan::Totals all;
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const trace::DeviceTime& time = times[d];
    all.transfers += totals[d].transfers;
    all.transfers_forward += totals[d].transfers_forward;
    all.work.sent += totals[d].work.sent;
    devices.push_back({{"name", report.plan.devices()[d]},
                       {"cores", report.job.cluster().devices()[d].cores},
                       {"busy", share(time.busy, total)},
                       {"idle", share(time.idle, total)},
                       {"waiting", share(time.waiting, total)},
                       {"exposed_communication", share(time.exposed, total)},
                       {"overlapped_communication", share(time.overlapped, total)},
                       {"delayed", share(time.delayed, total)},
                       {"peak_bytes", report.result.peak[d].count},
                       {"sent_bytes", totals[d].work.sent.count},
                       {"received_bytes", totals[d].work.received.count}});
  }
  ordered_json path{{"compute", 0.0}, {"communication", 0.0}, {"delay", 0.0}, {"overhead", 0.0}};
  for (const trace::StepTrace& step : report.result.trace.steps) {
    for (const trace::PathSegment& segment : trace::critical_path(report.plan, step)) {
      auto& entry = path[static_cast<std::size_t>(segment.kind) == 0   ? "compute"
                         : static_cast<std::size_t>(segment.kind) == 1 ? "communication"
                         : static_cast<std::size_t>(segment.kind) == 2 ? "delay"
                                                                       : "overhead"];
      entry = entry.get<double>() + share(segment.end - segment.start, total);
    }
  }
  ordered_json times_list = ordered_json::array();
  for (const Nanoseconds time : report.result.step_times) {
    times_list.push_back(time.count);
  }
  const strategy::Request& request = report.job.request();
  return {{"command", command_line()},
          {"model", report.job.model().name()},
          {"parameters", report.job.model().parameter_count()},
          {"strategy", request.strategy},
          {"backend", report.job.backend().name()},
          {"loss", strategy::to_text(request.step.loss)},
          {"optimizer", op::name(request.step.optimizer)},
          {"devices", devices},
          {"global_batch", request.step.global_batch},
          {"seed", report.seed},
          {"warmup", report.warmup},
          {"steps", report.result.losses.size()},
          {"step_time_ns",
           {{"median", spread.median.count},
            {"mean", spread.mean.count},
            {"std", spread.std.count},
            {"p5", spread.p5.count},
            {"p95", spread.p95.count},
            {"min", spread.min.count},
            {"max", spread.max.count}}},
          {"step_times_ns", times_list},
          {"losses", report.result.losses},
          {"transfers_forward", all.transfers_forward},
          {"transfers_step", all.transfers},
          {"bytes_on_wire", all.work.sent.count},
          {"critical_path", path},
          {"traced_steps", report.result.trace.steps.size()},
          {"origin", trace::to_text(report.result.trace.origin)},
          {"environment", environment(report.job.machine(), report.job.cluster())}};
}

void print_summary(const Report& report) {
  const trace::Spread spread = report.spread();
  if (report.timed().empty()) {
    fmt::print("\nNo step was timed: all {} were warm-up.\n", report.result.losses.size());
    return;
  }
  const double samples = static_cast<double>(report.job.request().step.global_batch) /
                         (static_cast<double>(spread.median.count) * 1e-9);
  fmt::print("\nStep time over {} steps (measured; the first {} dropped as warm-up)\n", report.timed().size(),
             std::min<std::int64_t>(report.warmup, static_cast<std::int64_t>(report.result.losses.size())));
  fmt::print("  median {}   mean {} ± {}   p5 {}   p95 {}   {:.0f} samples/s\n", to_text(spread.median),
             to_text(spread.mean), to_text(spread.std), to_text(spread.p5), to_text(spread.p95), samples);
  fmt::print("Loss {:.6g} at the first step, {:.6g} at the last\n\n", report.result.losses.front(),
             report.result.losses.back());
  Nanoseconds total;
  const std::vector<trace::DeviceTime> times = report.device_times(total);
  const std::vector<plan::Totals> totals = plan::totals_by_device(report.plan);
  Table table({"device", "busy", "idle", "of which waiting", "exposed comm.", "memory", "sent/step", "received/step"});
  for (std::size_t d = 0; d < times.size(); ++d) {
    table.row({report.plan.devices()[d], percent(share(times[d].busy, total)), percent(share(times[d].idle, total)),
               percent(share(times[d].waiting, total)), percent(share(times[d].exposed, total)),
               to_text(report.result.peak[d]), to_text(totals[d].work.sent), to_text(totals[d].work.received)});
  }
  fmt::print("{}", table.text());
}

void train(const TrainWords& words, int& exit_code) {
  const std::int64_t steps = parse_integer(words.steps, "--steps", 1, 10'000'000);
  const std::int64_t warmup = parse_integer(words.warmup, "--warmup", 0, 10'000'000);
  const auto seed = static_cast<std::uint64_t>(
      parse_integer(words.seed, "--seed", 0, std::numeric_limits<std::int64_t>::max()));
  const std::int64_t samples = parse_integer(words.samples, "--samples", 0, std::numeric_limits<std::int64_t>::max());
  if (steps <= warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: ask for more steps, or a smaller --warmup", steps,
                      warmup);
  }
  const Job job(words.job);
  if (samples > 0 && samples < job.request().step.global_batch) {
    throw usage_error("--samples is {}, but a batch alone takes {}", samples, job.request().step.global_batch);
  }
  const plan::Plan plan = job.compile();
  check_writable(words.json);
  check_writable(words.trace);

  const bool to_stdout = words.json != "-" && words.trace != "-";
  const bool log = to_stdout && !words.quiet;
  exec::Executor executor(plan, job.cluster(), job.backend(), {.seed = seed, .samples = samples});
  if (to_stdout) {
    fmt::print("{}, {} parameters, {} backend\n", plan.title(), job.model().parameter_count(), job.backend().name());
    for (const cluster::Device& device : job.cluster().devices()) {
      fmt::print("  {} on {}\n", device.name, describe_cores(device));
    }
  }
  if (const std::string note = job.oversubscription(); !note.empty()) {
    fmt::print(to_stdout ? stdout : stderr, "note: {}\n", note);
  }
  if (log) {
    fmt::print("\n{:>6}  {:>10}  {:>12}\n", "step", "time", "loss");
  }

  interrupted = false;
  const auto previous = std::signal(SIGINT, [](int) { interrupted = true; });
  ProgressBar bar("training", steps, !words.quiet);
  std::int64_t shown = 0;
  const auto print_steps = [&](std::int64_t done, const exec::RunResult& so_far) {
    for (; log && shown < done; ++shown) {
      bar.clear();
      const auto at = static_cast<std::size_t>(shown);
      fmt::print("{:>6}  {:>10}  {:>12.6g}{}\n", shown, to_text(so_far.step_times[at]), so_far.losses[at],
                 shown < warmup ? "  warm-up" : "");
    }
  };
  const exec::RunResult result =
      executor.run({.steps = steps, .warmup = warmup}, [&](std::int64_t done, const exec::RunResult& so_far) {
        print_steps(done, so_far);
        bar.show(done);
        return !interrupted;
      });
  std::signal(SIGINT, previous);
  print_steps(static_cast<std::int64_t>(result.losses.size()), result);
  bar.clear();
  if (interrupted) {
    fmt::print(stderr, "baton: interrupted after {} of {} steps; what follows is of those\n", result.losses.size(), steps);
    exit_code = 130;
  }
  const Report report{job, plan, result, warmup, seed};
  if (to_stdout) {
    print_summary(report);
  }
  for (std::size_t s = 0; s < result.losses.size(); ++s) {
    if (!std::isfinite(result.losses[s])) {
      fmt::print(stderr, "baton: the loss is {} at step {}: try a smaller --lr\n", result.losses[s], s);
      exit_code = 1;
      break;
    }
  }
  if (!words.json.empty()) {
    write_output(words.json, to_json(report).dump(2) + "\n");
  }
  if (!words.trace.empty()) {
    write_output(words.trace, trace::to_chrome_json(plan, result.trace));
  }
}

}  // namespace

void add_train_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("train", "Train a model under a strategy and measure what it costs");
  auto words = std::make_shared<TrainWords>();
  add_job_flags(*command, words->job);
  command->add_option("-n,--steps", words->steps, "steps, warm-up included")->capture_default_str();
  command->add_option("--warmup", words->warmup, "steps that are run but not timed")->capture_default_str();
  command->add_option("--seed", words->seed, "seed of weights and data")->capture_default_str();
  command->add_option("--samples", words->samples, "samples in the data set; 0: the same batch every step")
      ->capture_default_str();
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev");
  command->add_flag("-q,--quiet", words->quiet, "no line a step");
  command->footer(
      "\nExamples:\n  baton train --model mlp:dim=1024,depth=2 --strategy ddp --devices cpu:2 --batch 64\n"
      "  baton train --strategy layers --devices cpu:2 --model first-split --batch 32 --trace trace.json\n"
      "  baton train --strategy ddp --devices cpu:2 --delay before=backward,rank=0,ms=20\n"
      "  baton train --strategy ddp --devices cpu:2 --link bandwidth=1GB/s,latency=50us --json -");
  command->callback([words, &exit_code] { train(*words, exit_code); });
}

}  // namespace baton::app
