#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/checkpoint/checkpoint.h"
#include "baton/checkpoint/share.h"
#include "baton/exec/clock.h"
#include "baton/exec/ranks/fingerprint.h"
#include "baton/lab/bystanders.h"
#include "baton/lab/divergence.h"
#include "baton/lab/rows.h"
#include "baton/lab/start.h"
#include "baton/lab/training_json.h"
#include "baton/trace/chrome.h"
#include "commands.h"
#include "guard.h"
#include "options.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"

namespace baton::app {
namespace {

constexpr double least_patience = 0.5;

struct TrainWords {
  lab::JobWords job;
  std::string steps = usual_steps;
  std::string warmup = "5";
  std::string json;
  std::string trace;
  std::string checkpoint;
  std::string every;
  std::string keep = "3";
  bool resume = false;
  std::string start;  // the folder to write weights and data before the first step to
  std::string patience = "5";
  bool quiet = false;
};

/// Saves now and then where the user asked for it. All ranks take part; rank 0 alone reads and writes files.
class Saving {
 public:
  Saving(const TrainWords& words, lab::Training& run) : run_(run) {
    const std::int64_t keep = parse_integer(words.keep, "--keep", 1, 1'000'000);
    if (words.checkpoint.empty()) {
      if (words.resume || !words.every.empty()) {
        throw usage_error("--resume and --every need a folder: give one with --checkpoint");
      }
      return;
    }
    every_ = words.every.empty() ? 0 : parse_integer(words.every, "--every", 1, 10'000'000);
    saves_ = true;
    run.make_room_for_checkpoints();
    std::optional<checkpoint::Found> found;
    exec::on_rank_0(world(), [&] {
      folder_.emplace(words.checkpoint, keep);
      if (!words.resume) {
        folder_->require_empty();
      }
      found = words.resume ? folder_->newest() : std::nullopt;
      if (found) {
        if (!found->skipped.empty()) {
          fmt::print(stderr, "baton: {}; an older one is taken\n", printable(found->skipped));
        }
        last_ = found->path.string();
      }
    });
    share_last();
    if (!last_.empty()) {
      differences_ = run.restore(checkpoint::SharedSource(world(), found ? found->archive.get() : nullptr));
      saved_step_ = run.steps_before();
    }
  }

  /// How many of `left` steps to run before something is saved.
  std::int64_t stretch(std::int64_t left) const {
    if (!saves_ || every_ == 0) {
      return left;
    }
    return std::min(left, every_ - done() % every_);
  }
  /// Returns what is not finite, in which case nothing is saved; empty: all is.
  std::string save() {
    if (!saves_) {
      return "";
    }
    const Keeping keeping;
    std::unique_ptr<checkpoint::ArchiveWriter> writer;
    std::exception_ptr failed;  // on rank 0, which goes on for the others' sake
    const auto attempt = [&](const auto& action) {
      try {
        if (world().rank() == 0 && !failed) {
          action();
        }
      } catch (...) {
        failed = std::current_exception();
      }
    };
    attempt([&] { writer = folder_->begin(done(), run_.tensors(), run_.metadata()); });
    std::string broken = run_.save([&](std::span<const std::byte> tensor) { attempt([&] { writer->append(tensor); }); });
    if (broken.empty()) {
      exec::on_rank_0(world(), [&] {
        if (failed) {
          std::rethrow_exception(failed);
        }
        last_ = folder_->finish(*writer).string();
      });
      share_last();
      saved_step_ = done();
    }
    return broken;
  }
  /// The last one that was saved or gone on from; empty where there is none.
  const std::string& last() const { return last_; }
  /// The steps done by then.
  std::int64_t saved_step() const { return saved_step_; }
  /// What the run that was gone on from was given otherwise, in words.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  /// Rank 0 names the checkpoint to the others.
  void share_last() {
    exec::Blob path = exec::to_blob(last_);
    world().broadcast(path, 0);
    last_ = exec::to_text(path);
  }

  std::int64_t done() const { return run_.steps_before() + static_cast<std::int64_t>(run_.losses().size()); }

  lab::Training& run_;
  bool saves_ = false;
  std::optional<checkpoint::Folder> folder_;  // at rank 0
  std::int64_t every_ = 0;
  std::string last_;
  std::int64_t saved_step_ = 0;
  std::vector<std::string> differences_;
};

/// The first step whose loss is not finite, counting those of this run; nothing where all are.
std::optional<std::size_t> first_broken(const std::vector<double>& losses) {
  for (std::size_t s = 0; s < losses.size(); ++s) {
    if (!std::isfinite(losses[s])) {
      return s;
    }
  }
  return std::nullopt;
}

/// What stays of a run that ends in the middle of a step.
std::string what_stands(const Saving& saving) {
  return saving.last().empty() ? "nothing is saved"
                               : fmt::format("the checkpoint of step {} stands: {}", saving.saved_step(), printable(saving.last()));
}

/// Who runs the device, where that is not this process alone.
std::string describe_rank(const cluster::Device& device) {
  const exec::Place& place = world().places()[static_cast<std::size_t>(device.rank)];
  return world().alone() ? "" : fmt::format(", rank {} on {}", device.rank, place.host);
}

/// Where values that are not finite came from, as far as a minute of training it again tells; empty where it
/// does not.
std::string origin_of_divergence(const lab::Training& run, const std::string& checkpoint, std::int64_t step) {
  fmt::print(stderr, "baton: values are not finite; training again on one device from {} to find where that started\n",
             checkpoint.empty() ? "the start" : checkpoint);
  try {
    std::optional<checkpoint::ArchiveReader> from;
    if (!checkpoint.empty()) {
      from.emplace(checkpoint);
    }
    const Nanoseconds end = exec::now() + Nanoseconds(60'000'000'000);
    const auto found = lab::find_divergence(run.job().words(), run.job().machine(), from ? &*from : nullptr, step,
                                            [&] { return exec::now() < end; });
    return found ? fmt::format("; the first value that was not finite is from {} at step {}", found->where, found->step) : "";
  } catch (const Error&) {
    return "";  // one device may be too small, or the checkpoint gone
  }
}

/// Says that values are not finite, where that came from and what to do; `what` holds them at the step.
void report_divergence(const lab::Training& run, const std::string& what, std::int64_t step, const std::string& checkpoint) {
  fmt::print(stderr, "baton: {} at step {}{}: try a smaller --lr{}{}\n", what, step, origin_of_divergence(run, checkpoint, step),
             run.job().request().step.precision == strategy::Precision::fp16 ? ", or --precision bf16" : "",
             checkpoint.empty() ? "" : "; the last good checkpoint is " + checkpoint);
}

void print_summary(const lab::Training& run, double others_share) {
  if (run.timed().empty()) {
    fmt::print("\nNo step was timed: all {} were warm-up.\n", run.losses().size());
    return;
  }
  const trace::Spread spread = trace::spread(run.timed());
  const double samples = lab::samples_per_s(run);
  const std::size_t steps = run.timed().size();
  fmt::print("\nStep time over {} step{} (measured; the first {} dropped as warm-up)\n", steps, steps == 1 ? "" : "s",
             run.warmup());
  if (steps == 1) {
    fmt::print("  {}   {:.0f} samples/s\n", to_text(spread.median), samples);
  } else {
    fmt::print("  median {}   mean {} ± {}   p5 {}   p95 {}   {:.0f} samples/s\n", to_text(spread.median), to_text(spread.mean),
               to_text(spread.std), to_text(spread.p5), to_text(spread.p95), samples);
  }
  if (lab::disturbs(others_share)) {
    fmt::print("  other processes used {} of this machine's cores at the same time, so the step times are too long\n",
               lab::percent(others_share));
  }
  fmt::print("Loss {} at the first step, {} at the last\n", loss_text(run.losses().front()), loss_text(run.losses().back()));
  if (!run.roundings().empty()) {
    const exec::Rounding gradients = exec::sum(run.roundings(), plan::Role::gradient);
    const exec::Rounding all = exec::sum(run.roundings());
    fmt::print("Rounding made {} of {} gradients zero; of all values {} vanished and {} overflowed\n", gradients.underflows,
               gradients.values, all.underflows, all.overflows);
  }
  if (const std::optional<op::ScaleState> scaler = run.scaler()) {
    fmt::print("Loss scale {:.6g} at the end; {:.0f} of {:.0f} steps skipped for gradients that were not finite\n", scaler->scale,
               scaler->skipped_steps, scaler->steps);
  }
  fmt::print("\n{}", device_table(run));
  if (const std::string late = findings::straggler(run.comers(),
                                                   Nanoseconds(run.traced().count / std::max<std::int64_t>(1, run.traced_steps())));
      !late.empty()) {
    fmt::print("\n{}\n", late);
  }
}

void train(TrainWords words, int& exit_code) {
  const std::int64_t steps = parse_integer(words.steps, "--steps", 1, 10'000'000);
  const std::int64_t warmup = parse_integer(words.warmup, "--warmup", 0, 10'000'000);
  if (steps <= warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: give more steps, or a smaller --warmup", steps, warmup);
  }
  if (!words.job.cluster.empty() || !words.job.what_if.empty() || words.job.fold != lab::JobWords{}.fold) {
    throw usage_error("train runs on this machine: use baton simulate for --cluster, --what-if and --fold");
  }
  if (!words.start.empty() && words.resume) {
    throw usage_error("--write-start writes the start of a training, and --resume continues another one: leave out one of them");
  }
  lab::Training run(words.job, cluster::probe(), {}, &world());
  guard_run(run);
  exec::require_same(world(), {{"--steps", words.steps},
                               {"--warmup", words.warmup},
                               {"--checkpoint", words.checkpoint.empty() ? "none" : "some"},
                               {"--every", words.every},
                               {"--resume", words.resume ? "yes" : "no"},
                               {"--write-start", words.start.empty() ? "none" : "some"}});
  exec::on_rank_0(world(), [&] { settle_outputs({&words.json, &words.trace}); });
  Saving saving(words, run);
  guard_run(run);  // it may have steps before it now
  guard_checkpoint(saving.last());
  const std::int64_t left = steps - run.steps_before();
  if (left < 1) {
    throw usage_error("{} is already at step {}: give a larger --steps", saving.last(), run.steps_before());
  }

  if (!words.start.empty()) {
    run.make_room_for_checkpoints();
    lab::write_start(words.start, run, steps, world().rank() == 0);
  }

  const bool speaks = world().rank() == 0;
  const bool to_stdout = speaks && words.json != "-" && words.trace != "-";
  const bool log = to_stdout && !words.quiet;
  if (to_stdout) {
    fmt::print("{}, {} parameters, {} backend\n", run.plan().title(), run.job().model().parameter_count(),
               run.job().backend().name());
    for (const cluster::Device& device : run.job().cluster().devices()) {
      fmt::print("  {} on {}{}\n", device.name, describe_cores(device), describe_rank(device));
    }
  }
  if (const std::string note = run.job().oversubscription(); speaks && !note.empty()) {
    fmt::print(to_stdout ? stdout : stderr, "note: {}\n", note);
  }
  if (to_stdout && run.emulated()) {
    fmt::print(
        "note: {} is emulated: float32 kernels run and their operands and results are rounded, so the times are not "
        "those of 16-bit hardware\n",
        strategy::to_text(run.job().request().step.precision));
  }
  if (to_stdout) {
    fmt::print("{}", unused_note(run.job()));
  }
  if (to_stdout && run.steps_before() > 0) {
    fmt::print("continues from {}, step {}\n", saving.last(), run.steps_before());
  }
  for (const std::string& difference : saving.differences()) {
    if (speaks) {
      fmt::print(to_stdout ? stdout : stderr, "note: {} since that checkpoint\n", printable(difference));
    }
  }
  if (speaks && words.resume && saving.last().empty()) {
    fmt::print(to_stdout ? stdout : stderr, "note: there is no checkpoint in {}; training starts at step 0\n",
               printable(words.checkpoint));
  }
  if (log) {
    fmt::print("\n{:>6}  {:>10}  {:>12}\n", "step", "time", "loss");
  }

  const Interrupt interrupt;
  ProgressBar bar("training", left, speaks && !words.quiet, "steps");
  std::int64_t shown = 0;
  std::size_t stretch_begin = 0;  // the run's step that the lists below begin with
  const auto print_steps = [&](std::int64_t done, const std::vector<Nanoseconds>& times, const std::vector<double>& losses) {
    for (; log && shown < done; ++shown) {
      bar.clear();
      const auto at = static_cast<std::size_t>(shown);
      fmt::print("{:>6}  {:>10}  {:>12}{}\n", run.steps_before() + shown, to_text(times[at - stretch_begin]),
                 loss_text(losses[at - stretch_begin]), shown < warmup ? "  warm-up" : "");
    }
  };
  bool enough = false;
  int asked = 0;
  std::string unsavable;
  say_if_stopped(what_stands(saving));
  const lab::Bystanders bystanders;
  while (static_cast<std::int64_t>(run.losses().size()) < left && !enough) {
    stretch_begin = run.losses().size();
    const auto begin = static_cast<std::int64_t>(stretch_begin);
    const std::int64_t stretch = saving.stretch(left - begin);
    try {
      run.run(
          stretch, std::clamp<std::int64_t>(warmup - begin, 0, stretch),
          [&](std::int64_t done, const exec::RunResult& so_far) {
            print_steps(begin + done, so_far.step_times, so_far.losses);
            bar.show(begin + done);
            return !interrupt.asked() && !first_broken(so_far.losses);
          },
          true);
    } catch (const Stopped&) {
      bar.clear();
      throw Stopped(fmt::format("stopped in the middle of a step, after {} of {}; {}", run.steps_before() + begin, steps,
                                what_stands(saving)));
    }
    interrupt.wind_up();
    // Whoever was interrupted, all ranks have ended after the same step.
    asked = interrupt.exit_code_anywhere(world());
    enough = static_cast<std::int64_t>(run.losses().size()) < begin + stretch || asked != 0;
    stretch_begin = 0;
    print_steps(static_cast<std::int64_t>(run.losses().size()), run.step_times(), run.losses());
    if (first_broken(run.losses())) {
      break;  // nothing is saved of it
    }
    unsavable = saving.save();
    if (!unsavable.empty()) {
      break;
    }
    guard_checkpoint(saving.last());
    say_if_stopped(what_stands(saving));
  }
  const double others_share = world().alone()  // ranks are others to each other
                                  ? bystanders.used().value_or(lab::CoreTime{}).share().value_or(0)
                                  : 0;
  bar.clear();
  const std::optional<std::size_t> broken = first_broken(run.losses());
  if (enough && !broken && static_cast<std::int64_t>(run.losses().size()) < left) {
    exit_code = asked != 0 ? asked : interrupt.exit_code();
    if (speaks) {
      fmt::print(stderr, "baton: interrupted after {} of {} steps; the results below are of these steps\n", run.losses().size(),
                 left);
    }
  }
  if (to_stdout) {
    print_summary(run, others_share);
  }
  if (broken || !unsavable.empty()) {
    exit_code = 1;
    const auto last = static_cast<std::int64_t>(broken ? *broken : run.losses().size() - 1);
    const std::string what = !broken                             ? unsavable + " is not finite"
                             : std::isnan(run.losses()[*broken]) ? "the loss is not a number"
                                                                 : "the loss is infinite";
    if (speaks) {
      report_divergence(run, what, run.steps_before() + last, saving.last());
    }
  } else if (to_stdout && !words.checkpoint.empty()) {
    fmt::print("\nCheckpoint: {}\n", saving.last());
  }
  if (speaks && !words.json.empty()) {
    write_output(words.json, lab::result_json(run, command_line()).dump(2) + "\n");
  }
  if (speaks && !words.trace.empty()) {
    write_output(words.trace, trace::to_chrome_json(run.plan(), run.trace()));
    if (to_stdout) {
      fmt::print("\nTrace: {}; open it in ui.perfetto.dev\n", words.trace);
    }
  }
}

/// What stops this rank is told to the others, which would wait for it.
void train_guarded(const TrainWords& words, int& exit_code) {
  const double patience = parse_number(words.patience, "--patience", 0, 1e6);
  if (patience > 0 && patience < least_patience) {
    throw usage_error(
        "--patience is {} s, but a healthy rank may be silent for that long: give at least {} s, or 0 to switch it "
        "off",
        patience, least_patience);
  }
  {
    const StartLimit limit(!world().alone());
    std::vector<exec::Setting> settings{{"--patience", words.patience}};
    add_settings(words.job, settings);
    exec::require_same(world(), settings);
  }
  open_guard(world(), Nanoseconds(static_cast<std::int64_t>(patience * 1e9)));
  try {
    train(words, exit_code);
    guard_end(world());
  } catch (const Error& error) {
    guard_failure(printable(error.what()), error.kind() == Error::Kind::usage ? 2 : 1);
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const std::exception& error) {
    guard_failure(printable(error.what()), 1);
    throw;
  }
}

}  // namespace

void add_train_command(CLI::App& program, int& exit_code) {
  CLI::App* command = program.add_subcommand("train", "Train a model under a strategy and measure what it costs");
  auto words = std::make_shared<TrainWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, {"cluster", "what-if", "fold"});
  command->add_option("-n,--steps", words->steps, "number of steps, including warm-up")->type_name("N")->capture_default_str();
  command->add_option("--warmup", words->warmup, "number of first steps that are run but not timed")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -")->type_name("FILE");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev")->type_name("FILE");
  command
      ->add_option("--checkpoint", words->checkpoint,
                   "folder for checkpoints: weights and optimizer state are saved at the end and on Ctrl-C")
      ->type_name("DIR");
  command->add_option("--every", words->every, "also save every N steps")->type_name("N");
  command->add_option("--keep", words->keep, "number of checkpoints to keep; older ones are deleted")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--resume", words->resume,
                    "continue from the newest checkpoint, under any strategy; --steps includes the steps before it");
  command->add_option("--write-start", words->start,
                      "a folder to write the weights and the data before the first step to, for the script of `baton pytorch`");
  command
      ->add_option("--patience", words->patience,
                   "with several ranks: end the run if a rank has been stopped or has hung for this many seconds; 0 means never")
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag("-q,--quiet", words->quiet, "do not print a line per step");
  command->footer(
      "\nExamples:\n  baton train --model mlp:dim=1024,depth=2 --strategy ddp --devices cpu:2 --batch 64\n"
      "  baton train --strategy layers --devices cpu:2 --model first-split --batch 32 --trace trace.json\n"
      "  baton train --strategy ddp --devices cpu:2 --delay before=backward,device=0,ms=20\n"
      "  baton train --strategy ddp --devices cpu:2 --link bandwidth=1GB/s,latency=50us --json -\n"
      "  baton train --model mlp:dim=128,depth=12 --batch 512 --precision fp16 --loss-scale none");
  command->callback([words, &exit_code] { train_guarded(*words, exit_code); });
}

}  // namespace baton::app
