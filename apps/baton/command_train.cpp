#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/exec/fingerprint.h"
#include "commands.h"
#include "guard.h"
#include "options.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"
#include "train_session.h"

namespace baton::app {
namespace {

constexpr double least_patience = 0.5;

/// Sends an error of this rank to the others, which would wait for it.
void train_guarded(const TrainWords& words, int& exit_code) {
  if (words.patience > 0 && words.patience < least_patience) {
    throw usage_error(
        "--patience is {} s, but a healthy rank may be silent for that long: give at least {} s, or 0 to switch it "
        "off",
        words.patience, least_patience);
  }
  {
    const StartLimit limit(!world().alone());
    exec::require_same(world(), shared_settings(words));
  }
  open_guard(world(), Nanoseconds(static_cast<std::int64_t>(words.patience * 1e9)));
  try {
    exit_code = TrainSession(words).train();
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
  hide_job_flags(*command, {"cluster", "software", "what-if", "fold"});
  add_number(*command, "-n,--steps", words->steps, std::int64_t{1}, most_steps,
             fmt::format("number of steps, including warm-up (default: {}; with --data one epoch)", usual_steps));
  add_number(*command, "--epochs", words->epochs, 0.0, 1e9, "train for this many passes over the data, instead of --steps");
  add_number(*command, "--warmup", words->warmup, std::int64_t{0}, most_steps,
             "number of first steps that are run but not timed (default: 5, or fewer if a training on data is that short)");
  command
      ->add_option("--eval-data", words->eval_data,
                   "with --data: evaluate on this (default: the test part of the data, if it has one)")
      ->type_name("SOURCE");
  add_number(*command, "--eval-every", words->eval_every, std::int64_t{1}, most_steps,
             "evaluate every N steps and at the end: loss, and accuracy or perplexity (default: every epoch)");
  command->add_flag(
      "--keep-best", words->keep_best,
      "keep the checkpoint with the lowest loss of all evaluations as best.safetensors in the folder of --checkpoint");
  add_number(*command, "--log-every", words->log_every, std::int64_t{1}, most_steps,
             "print a line every N steps: loss, learning rate, speed, time left (default: with --data some 50 lines, otherwise "
             "a line per step with its time)");
  command->add_option("--csv", words->csv, "write these lines to a table while training; --resume appends")->type_name("FILE");
  command->add_option("--json-lines", words->json_lines, "write them as one JSON object per line; --resume appends")
      ->type_name("FILE");
  command
      ->add_option("--report", words->report,
                   "write a page with the curves of loss, accuracy and speed, and the timeline of a step")
      ->type_name("FILE");
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -")->type_name("FILE");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev")->type_name("FILE");
  command
      ->add_option("--checkpoint", words->checkpoint,
                   "folder for checkpoints: weights and optimizer state are saved at the end and on Ctrl-C")
      ->type_name("DIR");
  add_number(*command, "--every", words->every, std::int64_t{1}, most_steps, "also save every N steps");
  add_number(*command, "--keep", words->keep, std::int64_t{1}, std::int64_t{1'000'000},
             "number of checkpoints to keep; older ones are deleted")
      ->default_str(fmt::format("{}", usual_keep));
  command->add_flag("--resume", words->resume,
                    "continue from the newest checkpoint, under any strategy; --steps includes the steps before it");
  command
      ->add_option("--write-start", words->start,
                   "a folder to write the weights and the data before the first step to, for the script of `baton pytorch`")
      ->type_name("DIR");
  add_number(*command, "--patience", words->patience, 0.0, 1e6,
             "with several ranks: end the run if a rank has been stopped or has hung for this many seconds; 0 means never");
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
