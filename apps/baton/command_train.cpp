#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/stop.h"
#include "baton/checkpoint/checkpoint.h"
#include "baton/checkpoint/share.h"
#include "baton/data/tokenizer.h"
#include "baton/exec/fingerprint.h"
#include "baton/lab/bystanders.h"
#include "baton/lab/divergence.h"
#include "baton/lab/rows.h"
#include "baton/lab/start.h"
#include "baton/lab/training_json.h"
#include "baton/model/huggingface.h"
#include "baton/trace/chrome.h"
#include "commands.h"
#include "guard.h"
#include "options.h"
#include "signals.h"
#include "summary.h"
#include "terminal.h"
#include "train_log.h"

namespace baton::app {
namespace {

constexpr double least_patience = 0.5;

struct TrainWords {
  lab::JobSpec job;
  std::string steps;   // empty: one epoch of the data, or the usual number
  std::string warmup;  // empty: the usual number, but not all steps
  std::string epochs;
  std::string eval_data;
  std::string eval_every;
  std::string log_every;
  std::string csv;
  std::string json_lines;
  std::string report;
  bool keep_best = false;
  std::string json;
  std::string trace;
  std::string checkpoint;
  std::string every;
  std::string keep = "3";
  bool keep_given = false;
  bool resume = false;
  std::string start;  // the folder to write weights and data before the first step to
  std::string patience = "5";
  bool quiet = false;
};

/// How many steps there are, how many of them are not timed, and how many make an epoch (0: there are none).
struct Length {
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  std::int64_t epoch = 0;
};

Length length_of(const TrainWords& words, const lab::Job& job) {
  constexpr std::int64_t most_steps = 10'000'000;
  constexpr std::int64_t usual_warmup = 5;
  const std::int64_t batch = job.request().step.global_batch;
  Length length;
  length.epoch = job.data() != nullptr ? job.data()->training().order().steps_per_epoch() : job.samples() / batch;
  if (!words.epochs.empty()) {
    if (!words.steps.empty()) {
      throw usage_error("--epochs and --steps both say how long to train: give one of them");
    }
    if (length.epoch == 0) {
      throw usage_error("--epochs counts passes over data, and there is none: give some with --data or --samples, or --steps");
    }
    const double epochs = parse_number(words.epochs, "--epochs", 0, 1e9);
    const double steps = std::max(0.0, std::ceil(epochs * static_cast<double>(length.epoch) - 1e-9));
    if (steps < 1 || steps > static_cast<double>(most_steps)) {
      throw usage_error("--epochs {} are {:.0f} steps of {} samples each: train for 1 to {} steps", words.epochs, steps, batch,
                        most_steps);
    }
    length.steps = static_cast<std::int64_t>(steps);
  } else if (words.steps.empty() && job.data() != nullptr) {
    length.steps = length.epoch;
  } else {
    length.steps = parse_integer(words.steps.empty() ? usual_steps : words.steps, "--steps", 1, most_steps);
  }
  const bool shortens = words.steps.empty() || job.data() != nullptr;  // every step on data counts, whether it is timed or not
  length.warmup = words.warmup.empty() ? (shortens ? std::min(usual_warmup, length.steps - 1) : usual_warmup)
                                       : parse_integer(words.warmup, "--warmup", 0, most_steps);
  if (length.steps <= length.warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: give more steps, or a smaller --warmup", length.steps,
                      length.warmup);
  }
  return length;
}

/// What to evaluate on now and then. All ranks take part.
class Evaluating {
 public:
  Evaluating(const TrainWords& words, lab::Training& run, const Length& length) : run_(run) {
    if (run.job().data() == nullptr) {
      for (const auto& [flag, given] :
           {std::pair("--eval-data", !words.eval_data.empty()), std::pair("--eval-every", !words.eval_every.empty()),
            std::pair("--keep-best", words.keep_best)}) {
        if (given) {
          throw usage_error("{} needs data to train on: give some with --data", flag);
        }
      }
      return;
    }
    feed_ = run.job().data()->evaluation(words.eval_data);
    if (!feed_) {
      if (!words.eval_every.empty() || words.keep_best) {
        throw usage_error("{} needs data to evaluate on, and {} has no test part: give some with --eval-data",
                          words.keep_best ? "--keep-best" : "--eval-every", words.job.data);
      }
      return;
    }
    every_ = words.eval_every.empty() ? std::max<std::int64_t>(1, length.epoch)
                                      : parse_integer(words.eval_every, "--eval-every", 1, 10'000'000);
    forward_ = std::make_unique<lab::Forward>(run.job(), *feed_);
  }

  /// How many of `left` steps to run before the next evaluation.
  std::int64_t stretch(std::int64_t left, std::int64_t done) const {
    return forward_ ? std::min(left, every_ - done % every_) : left;
  }
  /// Whether one is due after this many steps of all.
  bool due(std::int64_t done, std::int64_t steps) const { return forward_ && (done % every_ == 0 || done == steps); }
  std::optional<lab::Evaluation> evaluate(const std::function<bool(std::int64_t done, std::int64_t of)>& go_on) {
    guard_plan(forward_->plan(), run_.job(), 0);
    std::optional<lab::Evaluation> evaluation = run_.evaluate(*forward_, *feed_, go_on);
    guard_run(run_);
    return evaluation;
  }

 private:
  lab::Training& run_;
  std::unique_ptr<lab::SampleFeed> feed_;
  std::unique_ptr<lab::Forward> forward_;
  std::int64_t every_ = 0;
};

/// Saves now and then where the user asked for it. All ranks take part; rank 0 alone reads and writes files.
class Saving {
 public:
  Saving(const TrainWords& words, lab::Training& run) : run_(run) {
    const std::int64_t keep = parse_integer(words.keep, "--keep", 1, 1'000'000);
    if (words.checkpoint.empty()) {
      if (words.resume || !words.every.empty() || words.keep_given || words.keep_best) {
        throw usage_error("--resume, --every, --keep and --keep-best need a folder: give one with --checkpoint");
      }
      return;
    }
    every_ = words.every.empty() ? 0 : parse_integer(words.every, "--every", 1, 10'000'000);
    saves_ = true;
    if (run.job().data() != nullptr || !words.report.empty()) {
      log_ = (std::filesystem::path(words.checkpoint) / "log.jsonl").string();
    }
    run.make_room_for_checkpoints();
    std::optional<checkpoint::Found> found;
    ranks::on_rank_0(world(), [&] {
      if (const std::filesystem::path path(words.checkpoint); std::filesystem::is_regular_file(path)) {
        const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
        throw usage_error(
            "--checkpoint {} is a file, but train keeps its checkpoints in a folder: give {} with --resume to continue "
            "from the newest one there, or a new folder to begin in",
            words.checkpoint, folder);
      }
      folder_.emplace(words.checkpoint, keep);
      if (!words.resume) {
        folder_->require_empty();
      }
      found = words.resume ? folder_->newest() : std::nullopt;
      if (const lab::JobData* data = run.job().data(); data != nullptr && data->training().source().tokenizer()) {
        const std::filesystem::path path = data::path_of_tokenizer(std::filesystem::path(words.checkpoint) / "tokens.bin");
        const std::string own = data->training().source().tokenizer()->serialized();
        if (found && std::filesystem::exists(path) && data::read_tokenizer(path)->serialized() != own) {
          throw usage_error("{} was trained with another tokenizer than --data has: give --tokenizer {}", words.checkpoint,
                            path.string());
        }
        write_whole(path, own);
      }
      best_path_ = std::filesystem::path(words.checkpoint) / checkpoint::best_name;
      if (words.resume && words.keep_best && std::filesystem::exists(best_path_)) {
        const checkpoint::Metadata metadata = checkpoint::ArchiveReader(best_path_).metadata();
        if (const auto loss = metadata.find("eval_loss"); loss != metadata.end()) {
          best_ = parse_number(loss->second, "the best checkpoint's eval_loss", -1e300, 1e300);
          const auto step = metadata.find("step");
          best_step_ = parse_integer(step == metadata.end() ? "" : step->second, "the best checkpoint's step", 0,
                                     std::int64_t{1} << 48);
        }
      }
      if (found) {
        if (!found->skipped.empty()) {
          fmt::print(stderr, "baton: {}; an older one is taken\n", printable(found->skipped));
        }
        last_ = found->path.string();
      }
    });
    share_last();
    ranks::Blob best = ranks::to_blob(fmt::format("{}", best_));
    world().broadcast(best, 0);
    best_ = std::strtod(ranks::to_text(best).c_str(), nullptr);
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
  /// Whether something is to be saved after this many steps of all.
  bool due(std::int64_t done, std::int64_t steps) const { return saves_ && (done == steps || (every_ > 0 && done % every_ == 0)); }
  /// Returns what is not finite, in which case nothing is saved; empty: all is.
  std::string save() {
    if (!saves_) {
      return "";
    }
    std::string broken = write([&] { return folder_->begin(done(), run_.tensors(), run_.metadata()); },
                               [&](checkpoint::ArchiveWriter& writer) { last_ = folder_->finish(writer).string(); });
    if (broken.empty()) {
      share_last();
      saved_step_ = done();
    }
    return broken;
  }
  /// Keeps the weights as the best ones if no evaluation before had a lower loss; returns whether it did.
  bool save_if_best(const lab::Evaluation& evaluation) {
    if (!saves_ || !std::isfinite(evaluation.loss) || evaluation.loss >= best_) {
      return false;
    }
    best_ = evaluation.loss;
    best_step_ = evaluation.step;
    checkpoint::Metadata metadata = run_.metadata();
    metadata["eval_loss"] = fmt::format("{}", evaluation.loss);
    return write([&] { return std::make_unique<checkpoint::ArchiveWriter>(best_path_, run_.tensors(), metadata); },
                 [&](checkpoint::ArchiveWriter& writer) { writer.commit(); })
        .empty();
  }

  /// Which evaluation was best, and where its weights are, at rank 0; empty if nothing was kept as the best.
  std::string best() const {
    return best_step_ < 0 ? ""
                          : fmt::format("Best: step {} with loss {}, in {}", best_step_, loss_text(best_), best_path_.string());
  }
  /// The file beside the checkpoints that the lines of all runs are kept in; empty if there is none.
  std::string log() const { return log_; }
  /// The last one that was saved or continued from; empty if there is none.
  const std::string& last() const { return last_; }
  /// The steps done by then.
  std::int64_t saved_step() const { return saved_step_; }
  /// What the run that was continued from was given otherwise, in words.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  /// Writes all tensors with the writer that rank 0 begins, and lets it finish; returns what is not finite, in which case it does
  /// not.
  std::string write(const std::function<std::unique_ptr<checkpoint::ArchiveWriter>()>& begin,
                    const std::function<void(checkpoint::ArchiveWriter&)>& finish) {
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
    attempt([&] { writer = begin(); });
    std::string broken = run_.save([&](std::span<const std::byte> tensor) { attempt([&] { writer->append(tensor); }); });
    if (broken.empty()) {
      ranks::on_rank_0(world(), [&] {
        if (failed) {
          std::rethrow_exception(failed);
        }
        finish(*writer);
      });
    }
    return broken;
  }
  /// Rank 0 names the checkpoint to the others.
  void share_last() {
    ranks::Blob path = ranks::to_blob(last_);
    world().broadcast(path, 0);
    last_ = ranks::to_text(path);
  }

  std::int64_t done() const { return run_.steps_before() + static_cast<std::int64_t>(run_.losses().size()); }

  lab::Training& run_;
  bool saves_ = false;
  std::optional<checkpoint::Folder> folder_;  // at rank 0
  std::int64_t every_ = 0;
  std::string last_;
  std::int64_t saved_step_ = 0;
  std::vector<std::string> differences_;
  std::string log_;
  std::filesystem::path best_path_;
  double best_ = std::numeric_limits<double>::infinity();  // the lowest loss of an evaluation, at rank 0
  std::int64_t best_step_ = -1;                            // its step; -1: there is none
};

/// The first step whose loss is not finite, counting those of this run; nothing if all are.
std::optional<std::size_t> first_broken(const std::vector<double>& losses) {
  for (std::size_t s = 0; s < losses.size(); ++s) {
    if (!std::isfinite(losses[s])) {
      return s;
    }
  }
  return std::nullopt;
}

/// How to continue a run that ended early.
std::string how_to_go_on(const TrainWords& words, const Saving& saving) {
  if (saving.last().empty()) {
    return "";
  }
  return fmt::format("; continue with: {}{}", printable(command_line()), words.resume ? "" : " --resume");
}

/// What stays of a run that ends in the middle of a step.
std::string what_stands(const TrainWords& words, const Saving& saving) {
  return saving.last().empty() ? "nothing is saved"
                               : fmt::format("the checkpoint of step {} stands: {}{}", saving.saved_step(),
                                             printable(saving.last()), how_to_go_on(words, saving));
}

/// Who runs the device, where that is not this process alone.
std::string describe_rank(const cluster::Device& device) {
  const ranks::RankHost& place = world().hosts()[static_cast<std::size_t>(device.rank)];
  return world().alone() ? "" : fmt::format(", rank {} on {}", device.rank, place.host);
}

/// Where values that are not finite came from, as far as a minute of training it again tells; empty if it
/// does not.
std::string origin_of_divergence(const lab::Training& run, const std::string& checkpoint, std::int64_t step) {
  fmt::print(stderr, "baton: values are not finite; training again on one device from {} to find where that started\n",
             checkpoint.empty() ? "the start" : checkpoint);
  try {
    std::optional<checkpoint::ArchiveReader> from;
    if (!checkpoint.empty()) {
      from.emplace(checkpoint);
    }
    const Nanoseconds end = now() + Nanoseconds(60'000'000'000);
    const auto found = lab::find_divergence(run.job().spec(), run.job().machine(), from ? &*from : nullptr, step,
                                            [&] { return now() < end; });
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

void print_times(const lab::Training& run, double others_share) {
  if (run.timed().empty()) {
    fmt::print("\n{}", run.losses().empty() ? "" : fmt::format("No step was timed: all {} were warm-up.\n", run.losses().size()));
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
}

void print_summary(const lab::Training& run, double others_share) {
  print_times(run, others_share);
  if (!run.losses().empty()) {
    fmt::print("Loss {} at the first step, {} at the last\n", loss_text(run.losses().front()), loss_text(run.losses().back()));
  }
  if (!run.evaluations().empty()) {
    const lab::Evaluation& last = run.evaluations().back();
    fmt::print("Evaluation at step {} on {} samples: {}\n", last.step, last.samples, evaluation_text(last));
  }
  if (run.timed().empty()) {
    return;
  }
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

/// Says so if the last steps would learn nothing because the learning rate has reached 0; otherwise empty.
std::string rate_note(const lab::Job& job, std::int64_t steps) {
  const op::RateSchedule schedule = std::visit([](const auto& settings) { return settings.schedule; },
                                               job.request().step.optimizer);
  const std::int64_t until = std::max(schedule.linear_until, schedule.cosine_until);
  return until > 0 && until < steps && schedule.floor == 0 ? fmt::format(
                                                                 "the learning rate is 0 from step {} on, so the last {} of {} "
                                                                 "steps change nothing: set until={} in --lr-schedule, "
                                                                 "or a floor",
                                                                 until, steps - until + 1, steps, steps)
                                                           : "";
}

/// What rank 0 found, on every rank.
bool on_every_rank(bool found) {
  ranks::Blob answer = ranks::to_blob(found ? "yes" : "no");
  world().broadcast(answer, 0);
  return ranks::to_text(answer) == "yes";
}

void train(TrainWords words, int& exit_code) {
  if (!words.job.cluster.empty() || words.job.what_if.changes() || words.job.fold != job::Fold::automatic) {
    throw usage_error("train runs on this machine: use baton simulate for --cluster, --what-if and --fold");
  }
  if (!words.start.empty() && words.resume) {
    throw usage_error("--write-start writes the start of a training, and --resume continues another one: leave out one of them");
  }
  lab::Training run(words.job, cluster::probe(), {}, &world());
  const Length length = length_of(words, run.job());
  const std::int64_t steps = length.steps;
  const std::int64_t log_every = words.log_every.empty() ? (run.job().data() != nullptr ? usual_interval(steps) : 0)
                                                         : parse_integer(words.log_every, "--log-every", 1, 10'000'000);
  guard_run(run);
  exec::require_same(world(), {{"--steps", words.steps},
                               {"--warmup", words.warmup},
                               {"--epochs", words.epochs},
                               {"--eval-data", words.eval_data},
                               {"--eval-every", words.eval_every},
                               {"--keep-best", words.keep_best ? "yes" : "no"},
                               {"--checkpoint", words.checkpoint.empty() ? "none" : "some"},
                               {"--every", words.every},
                               {"--resume", words.resume ? "yes" : "no"},
                               {"--write-start", words.start.empty() ? "none" : "some"}});
  ranks::on_rank_0(world(), [&] { settle_outputs({&words.json, &words.trace, &words.report, &words.csv, &words.json_lines}); });
  for (const auto& [flag, path] : {std::pair("--csv", &words.csv), std::pair("--json-lines", &words.json_lines)}) {
    if (*path == "-") {
      throw usage_error("{} writes a file while the training runs: give a path", flag);
    }
  }
  Evaluating evaluating(words, run, length);
  Saving saving(words, run);
  guard_run(run);  // it may have steps before it now
  guard_checkpoint(saving.last());
  const bool speaks = world().rank() == 0;
  const std::int64_t left = steps - run.steps_before();
  TrainLog lines(run, steps, log_every > 0 ? log_every : usual_interval(steps),
                 {.csv = words.csv, .json_lines = words.json_lines, .kept = saving.log()}, speaks);
  // An evaluation that was interrupted is made first.
  const bool evaluates_first = evaluating.due(run.steps_before(), steps) && on_every_rank(!lines.evaluated_before());
  if (left < 1 && !evaluates_first) {
    throw usage_error("{} is already at step {}: give a larger --steps", saving.last(), run.steps_before());
  }

  if (!words.start.empty()) {
    run.make_room_for_checkpoints();
    lab::write_start(words.start, run, steps, world().rank() == 0);
  }

  const std::int64_t warmup = words.warmup.empty() ? std::min(length.warmup, std::max<std::int64_t>(0, left - 1)) : length.warmup;
  const bool to_stdout = speaks && words.json != "-" && words.trace != "-" && words.report != "-";
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
    for (const std::string& remark : model::remarks_on(words.job.model)) {
      fmt::print("note: {}\n", printable(remark));
    }
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
  if (const std::string note = rate_note(run.job(), steps); to_stdout && !note.empty()) {
    fmt::print("note: {}\n", note);
  }
  if (to_stdout && run.job().data() != nullptr) {
    const lab::SampleFeed& feed = run.job().data()->training();
    fmt::print("data: {}; {} samples, {} steps per epoch\n", printable(feed.source().description().format), feed.order().samples(),
               length.epoch);
  }
  if (log && log_every > 0) {
    fmt::print("\n{}\n", lines.heading());
  } else if (log) {
    fmt::print("\n{:>6}  {:>10}  {:>12}\n", "step", "time", "loss");
  }

  const Interrupt interrupt;
  ProgressBar bar("training", left, speaks && !words.quiet, "steps");
  std::int64_t shown = 0;
  std::size_t stretch_begin = 0;  // the run's step that the lists below begin with
  const auto print_lines = [&](const std::vector<std::string>& list) {
    for (const std::string& line : list) {
      if (log && log_every > 0) {
        bar.clear();
        fmt::print("{}\n", line);
        std::fflush(stdout);
      }
    }
  };
  const auto print_steps = [&](std::int64_t done, const std::vector<Nanoseconds>& times, const std::vector<double>& losses,
                               const std::vector<Nanoseconds>& data_waits) {
    print_lines(lines.add(done, static_cast<std::int64_t>(stretch_begin), {losses, times, data_waits}));
    for (; log && log_every == 0 && shown < done; ++shown) {
      bar.clear();
      const auto at = static_cast<std::size_t>(shown);
      fmt::print("{:>6}  {:>10}  {:>12}{}\n", run.steps_before() + shown, to_text(times[at - stretch_begin]),
                 loss_text(losses[at - stretch_begin]), shown < warmup ? "  warm-up" : "");
    }
  };
  const auto evaluate = [&](std::int64_t step) {
    std::optional<lab::Evaluation> evaluation;
    try {
      evaluation = evaluating.evaluate([&](std::int64_t, std::int64_t) {
        return world().alone() ? !interrupt.asked() : true;  // ranks stop together, after it
      });
    } catch (const Stopped&) {
      check(interrupt.asked(), "an evaluation was stopped, and nobody asked for that");
    }
    interrupt.wind_up();
    bar.clear();
    if (!evaluation) {
      exit_code = interrupt.exit_code();
      fmt::print(stderr, "baton: the evaluation at step {} was interrupted, so it has no result{}\n", step,
                 saving.last().empty() ? "" : "; it is made again when the training goes on");
      return;
    }
    const std::string line = lines.add(*evaluation);
    if (log) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    }
    if (words.keep_best) {
      saving.save_if_best(*evaluation);
    }
  };
  bool enough = false;
  int asked = 0;
  std::string unsavable;
  say_if_stopped(what_stands(words, saving));
  const lab::Bystanders bystanders;
  if (evaluates_first) {
    evaluate(run.steps_before());
    asked = interrupt.exit_code_anywhere(world());
    enough = asked != 0;
  }
  while (static_cast<std::int64_t>(run.losses().size()) < left && !enough) {
    stretch_begin = run.losses().size();
    const auto begin = static_cast<std::int64_t>(stretch_begin);
    const std::int64_t stretch = evaluating.stretch(saving.stretch(left - begin), run.steps_before() + begin);
    std::int64_t whole = begin;  // steps that are done, of this run
    try {
      run.run(
          stretch, std::clamp<std::int64_t>(warmup - begin, 0, stretch),
          [&](std::int64_t done, const exec::RunResult& so_far) {
            print_steps(begin + done, so_far.step_times, so_far.losses, so_far.data_waits);
            bar.show(begin + done);
            whole = begin + done;
            return !interrupt.asked() && !first_broken(so_far.losses);
          },
          true);
    } catch (const Stopped&) {
      bar.clear();
      // Ranks may have noticed different numbers of steps, and say the same.
      const std::string after = world().alone() ? fmt::format(", after {} of {}", run.steps_before() + whole, steps) : "";
      throw Stopped(fmt::format("stopped in the middle of a step{}; {}", after, what_stands(words, saving)));
    }
    interrupt.wind_up();
    // Whoever was interrupted, all ranks have ended after the same step.
    asked = interrupt.exit_code_anywhere(world());
    enough = static_cast<std::int64_t>(run.losses().size()) < begin + stretch || asked != 0;
    stretch_begin = 0;
    print_steps(static_cast<std::int64_t>(run.losses().size()), run.step_times(), run.losses(), run.data_waits());
    if (first_broken(run.losses())) {
      break;  // nothing is saved of it
    }
    const std::int64_t done = run.steps_before() + static_cast<std::int64_t>(run.losses().size());
    if (enough || saving.due(done, steps)) {
      unsavable = saving.save();
      if (!unsavable.empty()) {
        break;
      }
    }
    if (!enough && evaluating.due(done, steps)) {
      print_lines(done == steps ? lines.finish() : std::vector<std::string>());
      evaluate(done);
      asked = interrupt.exit_code_anywhere(world());
      enough = asked != 0 && done < steps;
      if (enough) {
        unsavable = saving.save();
        if (!unsavable.empty()) {
          break;
        }
      }
    }
    guard_checkpoint(saving.last());
    say_if_stopped(what_stands(words, saving));
  }
  print_lines(lines.finish());
  const double others_share = world().alone()  // ranks are others to each other
                                  ? bystanders.used().value_or(lab::CoreTime{}).share().value_or(0)
                                  : 0;
  bar.clear();
  const std::optional<std::size_t> broken = first_broken(run.losses());
  if (enough && !broken && static_cast<std::int64_t>(run.losses().size()) < left) {
    exit_code = asked != 0 ? asked : interrupt.exit_code();
    if (speaks) {
      fmt::print(stderr, "baton: interrupted after {} of {} steps; the results below are of these steps{}\n", run.losses().size(),
                 left, how_to_go_on(words, saving));
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
    if (const std::string best = saving.best(); !best.empty()) {
      fmt::print("{}\n", best);
    }
  }
  if (speaks && !words.json.empty()) {
    write_output(words.json, lab::result_json(run, command_line()).dump(2) + "\n");
  }
  if (speaks && !words.report.empty()) {
    write_output(words.report, training_page(lines, command_line()));
    if (to_stdout) {
      fmt::print("\nReport: {}\n", words.report);
    }
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
    std::vector<exec::Setting> settings{{"--patience", words.patience}, {"--json", words.json},
                                        {"--trace", words.trace},       {"--report", words.report},
                                        {"--csv", words.csv},           {"--json-lines", words.json_lines},
                                        {"--keep", words.keep},         {"--log-every", words.log_every}};
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
  hide_job_flags(*command, {"cluster", "software", "what-if", "fold"});
  command
      ->add_option("-n,--steps", words->steps,
                   fmt::format("number of steps, including warm-up (default: {}; with --data one epoch)", usual_steps))
      ->type_name("N");
  command->add_option("--epochs", words->epochs, "train for N passes over the data, instead of --steps")->type_name("N");
  command
      ->add_option("--warmup", words->warmup,
                   "number of first steps that are run but not timed (default: 5, or fewer if a training on data is that short)")
      ->type_name("N");
  command
      ->add_option("--eval-data", words->eval_data,
                   "with --data: evaluate on this (default: the test part of the data, if it has one)")
      ->type_name("SOURCE");
  command
      ->add_option("--eval-every", words->eval_every,
                   "evaluate every N steps and at the end: loss, and accuracy or perplexity (default: every epoch)")
      ->type_name("N");
  command->add_flag(
      "--keep-best", words->keep_best,
      "keep the checkpoint with the lowest loss of all evaluations as best.safetensors in the folder of --checkpoint");
  command
      ->add_option(
          "--log-every", words->log_every,
          "print a line every N steps: loss, learning rate, speed, time left (default: with --data some 50 lines, otherwise "
          "a line per step with its time)")
      ->type_name("N");
  command->add_option("--csv", words->csv, "write these lines to a table while training; --resume appends")->type_name("FILE");
  command->add_option("--json-lines", words->json_lines, "write them as one JSON object per line; --resume appends")
      ->type_name("FILE");
  command->add_option("--report", words->report, "write a page with the curves of loss, accuracy and speed")->type_name("FILE");
  command->add_option("--json", words->json, "write the result to a file, or to standard output with -")->type_name("FILE");
  command->add_option("--trace", words->trace, "write the timeline as Chrome trace JSON, for ui.perfetto.dev")->type_name("FILE");
  command
      ->add_option("--checkpoint", words->checkpoint,
                   "folder for checkpoints: weights and optimizer state are saved at the end and on Ctrl-C")
      ->type_name("DIR");
  command->add_option("--every", words->every, "also save every N steps")->type_name("N");
  command->add_option("--keep", words->keep, "number of checkpoints to keep; older ones are deleted")
      ->type_name("N")
      ->each([given = &words->keep_given](const std::string&) { *given = true; })
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
