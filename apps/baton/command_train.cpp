#include <fmt/format.h>

#include <cmath>

#include "baton/base/error.h"
#include "baton/lab/training.h"
#include "baton/trace/chrome.h"
#include "commands.h"
#include "options.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct TrainWords {
  lab::JobWords job;
  std::string steps = "30";
  std::string warmup = "5";
  std::string json;
  std::string trace;
  bool quiet = false;
};

void print_summary(const lab::Training& run) {
  if (run.timed().empty()) {
    fmt::print("\nNo step was timed: all {} were warm-up.\n", run.losses().size());
    return;
  }
  const trace::Spread spread = trace::spread(run.timed());
  const double samples = static_cast<double>(run.job().request().step.global_batch) /
                         (static_cast<double>(spread.median.count) * 1e-9);
  fmt::print("\nStep time over {} steps (measured; the first {} dropped as warm-up)\n", run.timed().size(), run.warmup());
  fmt::print("  median {}   mean {} ± {}   p5 {}   p95 {}   {:.0f} samples/s\n", to_text(spread.median),
             to_text(spread.mean), to_text(spread.std), to_text(spread.p5), to_text(spread.p95), samples);
  fmt::print("Loss {:.6g} at the first step, {:.6g} at the last\n\n", run.losses().front(), run.losses().back());
  fmt::print("{}", device_table(run));
}

void train(const TrainWords& words, int& exit_code) {
  const std::int64_t steps = parse_integer(words.steps, "--steps", 1, 10'000'000);
  const std::int64_t warmup = parse_integer(words.warmup, "--warmup", 0, 10'000'000);
  if (steps <= warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: ask for more steps, or a smaller --warmup", steps,
                      warmup);
  }
  if (!words.job.cluster.empty() || !words.job.what_if.empty()) {
    throw usage_error("train runs on this machine and for real: baton simulate takes --cluster and --what-if");
  }
  lab::Training run(words.job, cluster::probe());
  check_writable(words.json);
  check_writable(words.trace);

  const bool to_stdout = words.json != "-" && words.trace != "-";
  const bool log = to_stdout && !words.quiet;
  if (to_stdout) {
    fmt::print("{}, {} parameters, {} backend\n", run.plan().title(), run.job().model().parameter_count(),
               run.job().backend().name());
    for (const cluster::Device& device : run.job().cluster().devices()) {
      fmt::print("  {} on {}\n", device.name, describe_cores(device));
    }
  }
  if (const std::string note = run.job().oversubscription(); !note.empty()) {
    fmt::print(to_stdout ? stdout : stderr, "note: {}\n", note);
  }
  if (to_stdout && run.job().request().strategy == "single" && run.job().cluster().size() > 1) {
    fmt::print("note: single uses {} alone; choose another --strategy to use all {} devices\n", run.plan().devices()[0],
               run.job().cluster().size());
  }
  if (log) {
    fmt::print("\n{:>6}  {:>10}  {:>12}\n", "step", "time", "loss");
  }

  const Interrupt interrupt;
  ProgressBar bar("training", steps, !words.quiet);
  std::int64_t shown = 0;
  const auto print_steps = [&](std::int64_t done, const std::vector<Nanoseconds>& times,
                               const std::vector<double>& losses) {
    for (; log && shown < done; ++shown) {
      bar.clear();
      const auto at = static_cast<std::size_t>(shown);
      fmt::print("{:>6}  {:>10}  {:>12.6g}{}\n", shown, to_text(times[at]), losses[at], shown < warmup ? "  warm-up" : "");
    }
  };
  run.run(steps, warmup, [&](std::int64_t done, const exec::RunResult& so_far) {
    print_steps(done, so_far.step_times, so_far.losses);
    bar.show(done);
    return !interrupt.asked();
  });
  print_steps(static_cast<std::int64_t>(run.losses().size()), run.step_times(), run.losses());
  bar.clear();
  if (interrupt.asked()) {
    fmt::print(stderr, "baton: interrupted after {} of {} steps; what follows is of those\n", run.losses().size(), steps);
    exit_code = 130;
  }
  if (to_stdout) {
    print_summary(run);
  }
  for (std::size_t s = 0; s < run.losses().size(); ++s) {
    if (!std::isfinite(run.losses()[s])) {
      fmt::print(stderr, "baton: the loss is {} at step {}: try a smaller --lr\n", run.losses()[s], s);
      exit_code = 1;
      break;
    }
  }
  if (!words.json.empty()) {
    write_output(words.json, run.result(command_line()).dump(2) + "\n");
  }
  if (!words.trace.empty()) {
    write_output(words.trace, trace::to_chrome_json(run.plan(), run.trace()));
    if (to_stdout) {
      fmt::print("\nTrace: {}, to be opened in ui.perfetto.dev\n", words.trace);
    }
  }
}

}  // namespace

void add_train_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("train", "Train a model under a strategy and measure what it costs");
  auto words = std::make_shared<TrainWords>();
  add_job_flags(*command, words->job);
  command->add_option("-n,--steps", words->steps, "steps, warm-up included")->capture_default_str();
  command->add_option("--warmup", words->warmup, "steps that are run but not timed")->capture_default_str();
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
