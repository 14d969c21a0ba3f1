#include "train_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/exec/backend.h"
#include "baton/job/sentences.h"
#include "baton/lab/rows.h"
#include "baton/measure/other_processes.h"
#include "baton/model/huggingface.h"
#include "baton/trace/chrome.h"
#include "baton/training/divergence.h"
#include "baton/training/start.h"
#include "baton/training/training_json.h"
#include "baton/training/training_record.h"
#include "commands.h"
#include "guard.h"
#include "summary.h"
#include "train_page.h"

namespace baton::app {
namespace {

/// The first step whose loss is not finite, counting those of this run; nullopt if all are.
std::optional<std::size_t> first_broken(const std::vector<double>& losses) {
  for (std::size_t s = 0; s < losses.size(); ++s) {
    if (!std::isfinite(losses[s])) {
      return s;
    }
  }
  return std::nullopt;
}

/// The command that continues a run that ended early.
std::string resume_hint(const TrainWords& words, const Saving& saving) {
  if (saving.last().empty()) {
    return "";
  }
  return fmt::format("; continue with: {}{}", printable(command_line()), words.resume ? "" : " --resume");
}

/// The words on the checkpoint that is kept of a run that ends in the middle of a step.
std::string what_is_saved(const TrainWords& words, const Saving& saving) {
  return saving.last().empty() ? "nothing is saved"
                               : fmt::format("the checkpoint of step {} is kept: {}{}", saving.saved_step(),
                                             printable(saving.last()), resume_hint(words, saving));
}

/// The rank that runs the device; empty if there is only one.
std::string describe_rank(const cluster::Device& device) {
  const ranks::RankHost& place = world().hosts()[static_cast<std::size_t>(device.rank)];
  return world().alone() ? "" : fmt::format(", rank {} on {}", device.rank, place.host);
}

/// The origin of values that are not finite, if a minute of training again shows it; otherwise empty.
std::string origin_of_divergence(const training::Training& run, const std::string& checkpoint, std::int64_t step) {
  fmt::print(stderr, "baton: values are not finite; training again on one device from {} to find where that started\n",
             checkpoint.empty() ? "the start" : checkpoint);
  try {
    std::optional<checkpoint::ArchiveReader> from;
    if (!checkpoint.empty()) {
      from.emplace(checkpoint);
    }
    const Nanoseconds end = now() + Nanoseconds(60'000'000'000);
    const auto found = training::find_divergence(run.job().spec(), run.job().machine(), from ? &*from : nullptr, step,
                                                 [&] { return now() < end; });
    return found ? fmt::format("; the first value that was not finite is from {} at step {}", found->where, found->step + 1) : "";
  } catch (const Error&) {
    return "";  // one device may be too small, or the checkpoint gone
  }
}

/// Reports that values are not finite, where they came from and how to avoid them; `what` holds them at the step, counted from 0.
void report_divergence(const training::Training& run, const std::string& what, std::int64_t step, const std::string& checkpoint) {
  fmt::print(stderr, "baton: {} at step {}{}: try a smaller --lr{}{}\n", what, step + 1,
             origin_of_divergence(run, checkpoint, step),
             run.job().request().step.precision == strategy::Precision::fp16 ? ", or --precision bf16" : "",
             checkpoint.empty() ? "" : "; the last good checkpoint is " + checkpoint);
}

void print_times(const training::Training& run, double others_share) {
  if (run.timed().empty()) {
    fmt::print("\n{}", run.losses().empty() ? "" : fmt::format("No step was timed: all {} were warm-up.\n", run.losses().size()));
    return;
  }
  const trace::Spread spread = trace::spread(run.timed());
  const double samples = training::samples_per_s(run);
  const std::size_t steps = run.timed().size();
  fmt::print("\nStep time over {} step{} (measured{})\n", steps, steps == 1 ? "" : "s",
             run.warmup() > 0 ? fmt::format("; the first {} dropped as warm-up", run.warmup()) : "");
  if (steps == 1) {
    fmt::print("  {}   {:.0f} samples/s\n", to_text(spread.median), samples);
  } else {
    fmt::print("  median {}   mean {} ± {}   p5 {}   p95 {}   {:.0f} samples/s\n", to_text(spread.median), to_text(spread.mean),
               to_text(spread.std), to_text(spread.p5), to_text(spread.p95), samples);
  }
  if (measure::disturbs(others_share)) {
    fmt::print("  other processes used {} of this machine's cores at the same time, so the step times are too long\n",
               lab::percent(others_share));
  }
}

/// The device that keeps the others waiting. Stages of a pipeline do different work, so none of them is called slow: the busiest is
/// named, and how to share the work better. Empty if there is nothing to say.
std::string who_is_waited_for(const training::Training& run) {
  if (!job::is_pipeline(run.job().request())) {
    return findings::straggler(run.arrival_stats(),
                               Nanoseconds(run.traced().count / std::max<std::int64_t>(1, run.traced_steps())));
  }
  constexpr double uneven = 1.1;
  const std::vector<trace::DeviceTime>& times = run.device_times();
  const auto [least, most] = std::minmax_element(times.begin(), times.end(),
                                                 [](const auto& a, const auto& b) { return a.busy < b.busy; });
  if (static_cast<double>(most->busy.count) < uneven * static_cast<double>(least->busy.count)) {
    return "";
  }
  const job::JobSpec& spec = run.job().spec();
  return fmt::format("The busiest stage is on {}: it computes for {} of the step, the least busy device for {}.{}",
                     run.plan().devices()[static_cast<std::size_t>(most - times.begin())],
                     lab::percent(trace::share_of(most->busy, run.traced())),
                     lab::percent(trace::share_of(least->busy, run.traced())),
                     !spec.split.empty() || spec.balance == strategy::Balance::work ? ""
                     : strategy::is_rebalanced_by_work(run.job().request()) ? " --balance work shares the blocks by their work."
                                                                            : " Whole blocks cannot be shared more evenly.");
}

void print_summary(const training::Training& run, double others_share) {
  print_times(run, others_share);
  if (!run.losses().empty()) {
    fmt::print("Loss {} at the first step, {} at the last\n", loss_text(run.losses().front()), loss_text(run.losses().back()));
  }
  if (!run.evaluations().empty()) {
    const training::Evaluation& last = run.evaluations().back();
    fmt::print("Evaluation at step {} on {} samples: {}\n", last.step, last.samples, evaluation_text(last));
  }
  if (run.timed().empty()) {
    return;
  }
  if (!run.roundings().empty()) {
    const exec::Rounding gradients = exec::total_rounding(run.roundings(), plan::Role::gradient);
    const exec::Rounding all = exec::total_rounding(run.roundings());
    fmt::print("Rounding made {} of {} gradients zero; of all values {} vanished and {} overflowed\n", gradients.underflows,
               gradients.values, all.underflows, all.overflows);
  }
  if (const std::optional<op::ScaleState> scaler = run.scaler()) {
    fmt::print("Loss scale {:.6g} at the end; {:.0f} of {:.0f} steps skipped for gradients that were not finite\n", scaler->scale,
               scaler->skipped_steps, scaler->steps);
  }
  fmt::print("\n{}", device_table(run));
  if (const std::string late = who_is_waited_for(run); !late.empty()) {
    fmt::print("\n{}\n", late);
  }
}

/// A note if the last steps would learn nothing because the learning rate has reached 0; otherwise empty.
std::string rate_note(const training::Job& job, std::int64_t steps) {
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

/// Says so if the model has classes that the data has not; otherwise empty. Of tokens a vocabulary is often rounded up.
std::string classes_note(const training::Job& job) {
  if (job.data() == nullptr || job.request().step.loss != strategy::Loss::cross_entropy) {
    return "";
  }
  const data::Description& description = job.data()->training()->source().description();
  const std::int64_t classes = job.model().output().last();
  return description.kind == data::ContentType::tokens || job.model().blocks().front().values.front().integers ||
                 description.classes == 0 || description.classes >= classes
             ? ""
             : fmt::format("the data has {} class{}, the model {}", description.classes, description.classes == 1 ? "" : "es",
                           classes);
}

/// Sends rank 0's finding to every rank.
bool on_every_rank(bool found) {
  ranks::Blob answer = ranks::to_blob(found ? "yes" : "no");
  world().broadcast(answer, 0);
  return ranks::to_text(answer) == "yes";
}

/// Flags that do not go together are refused before anything is opened.
const TrainWords& checked(const TrainWords& words) {
  if (!words.job.cluster.empty() || words.job.what_if.changes() || words.job.fold != job::Fold::automatic) {
    throw usage_error("train runs on this machine: use baton simulate for --cluster, --what-if and --fold");
  }
  if (!words.start.empty() && words.resume) {
    throw usage_error("--write-start writes the start of a training, and --resume continues another one: leave out one of them");
  }
  return words;
}

}  // namespace

TrainSession::TrainSession(TrainWords words)
    : words_(std::move(words)),
      run_(checked(words_).job, cluster::probe(), {}, shared_world()),
      length_(length_of(words_, run_.job())),
      log_every_(words_.log_every.value_or(run_.job().data() != nullptr ? usual_interval(length_.steps) : 0)),
      speaks_(world().rank() == 0) {
  guard_run(run_);
  settle_files();
  to_stdout_ = speaks_ && words_.json != "-" && words_.trace != "-" && words_.report != "-";
  prints_steps_ = to_stdout_ && !words_.quiet;
  evaluating_.emplace(words_, run_, length_);
  saving_.emplace(words_, run_);
  guard_run(run_);  // it may have steps before it now
  guard_checkpoint(saving_->last());
  left_ = length_.steps - run_.steps_before();
  lines_.emplace(run_, length_.steps, log_every_ > 0 ? log_every_ : usual_interval(length_.steps),
                 TrainLog::Files{.csv = words_.csv, .json_lines = words_.json_lines, .kept = saving_->log()}, speaks_);
  // An evaluation that was interrupted is done first.
  evaluates_first_ = evaluating_->due(run_.steps_before(), length_.steps) && on_every_rank(!lines_->evaluated_before());
  if (left_ < 1 && !evaluates_first_) {
    throw usage_error("{} is already at step {}: give a larger --steps", saving_->last(), run_.steps_before());
  }
  if (!words_.start.empty()) {
    run_.make_room_for_checkpoints();
    training::write_start(words_.start, run_, length_.steps, speaks_);
  }
  warmup_ = words_.warmup ? length_.warmup : std::min(length_.warmup, std::max<std::int64_t>(0, left_ - 1));
}

void TrainSession::settle_files() {
  ranks::on_rank_0(world(), [&] {
    settle_outputs({&words_.json, &words_.trace, &words_.report, &words_.csv, &words_.json_lines});
  });
  for (const auto& [flag, path] : {std::pair("--csv", &words_.csv), std::pair("--json-lines", &words_.json_lines)}) {
    if (*path == "-") {
      throw usage_error("{} writes a file while the training runs: give a path", flag);
    }
  }
}

int TrainSession::train() {
  announce();
  interrupt_.emplace();
  bar_.emplace("training", left_, speaks_ && !words_.quiet, "steps");
  say_if_stopped(what_is_saved(words_, *saving_));
  const measure::OtherProcesses others;
  if (evaluates_first_) {
    evaluate(run_.steps_before());
    asked_ = interrupt_->exit_code_anywhere(world());
    stop_requested_ = asked_ != 0;
  }
  while (steps_done() < left_ && !stop_requested_ && train_stretch()) {
    guard_checkpoint(saving_->last());
    say_if_stopped(what_is_saved(words_, *saving_));
  }
  print_lines(lines_->finish());
  const double others_share = world().alone()  // ranks are others to each other
                                  ? others.used().value_or(measure::CoreTime{}).share().value_or(0)
                                  : 0;
  bar_->clear();
  if (run_.unread()) {
    say_what_is_unread();
  } else if (stop_requested_ && !first_broken(run_.losses()) && steps_done() < left_) {
    exit_code_ = asked_ != 0 ? asked_ : interrupt_->exit_code();
    if (speaks_) {
      fmt::print(stderr, "baton: interrupted after {} of {} steps; the results below are of these steps{}\n", steps_done(), left_,
                 resume_hint(words_, *saving_));
    }
  }
  if (to_stdout_) {
    print_summary(run_, others_share);
  }
  say_how_it_ended();
  if (speaks_) {
    write_results();
  }
  return exit_code_;
}

/// Rows that cannot be read ended the run. Results of the steps before, if there are any, are still written.
void TrainSession::say_what_is_unread() {
  try {
    std::rethrow_exception(run_.unread());
  } catch (const Error& error) {
    const std::string sentence = fmt::format("{}; {}", error.what(), what_is_saved(words_, *saving_));
    if (steps_done() == 0) {
      throw Error(error.kind(), sentence);
    }
    exit_code_ = error.kind() == Error::Kind::usage ? 2 : 1;
    if (speaks_) {
      fmt::print(stderr, "baton: {}\nThe results are of the {} steps before.\n", sentence, steps_done());
    }
  }
}

void TrainSession::announce() const {
  if (to_stdout_) {
    print_devices();
  }
  print_notes();
  if (to_stdout_ && run_.job().data() != nullptr) {
    const training::SampleFeed& feed = *run_.job().data()->training();
    fmt::print("data: {}; {} samples, {} steps per epoch\n", printable(feed.source().description().format), feed.order().samples(),
               length_.epoch);
  }
  if (prints_steps_ && log_every_ > 0) {
    fmt::print("\n{}\n", lines_->heading());
  } else if (prints_steps_) {
    fmt::print("\n{:>6}  {:>10}  {:>12}\n", "step", "time", "loss");
  }
}

void TrainSession::print_devices() const {
  fmt::print("{}, {} parameters, {} backend\n", run_.plan().title(), run_.job().model().parameter_count(),
             run_.job().backend().name());
  for (const cluster::Device& device : run_.job().cluster().devices()) {
    fmt::print("  {} on {}{}\n", device.name, describe_cores(device), describe_rank(device));
  }
}

/// Prints a note that must be read even if results go to standard output.
void TrainSession::note(const std::string& text) const {
  if (speaks_) {
    fmt::print(to_stdout_ ? stdout : stderr, "note: {}\n", text);
  }
}

/// Prints which unit computes 16-bit types, so that nobody takes emulated times for those of hardware.
void TrainSession::print_arithmetic() const {
  const std::string products = run_.emulated_products();
  if (run_.arithmetic() == exec::bf16_by_portable) {
    note(fmt::format("bf16 is computed by a model of AMX's tiles{}: its results have the bits of AMX, and its times say nothing",
                     products.empty() ? "" : fmt::format(", and emulated in {}", products)));
  } else if (run_.arithmetic() == exec::bf16_by_amx) {
    note(fmt::format(
        "bf16 runs on AMX: linear layers multiply in bf16 and sum in float32; other operations run in float32 and "
        "round their results{}",
        products.empty() ? "" : fmt::format(" (emulated: {}, whose times are not those of 16-bit hardware)", products)));
  } else if (run_.emulated()) {
    note(
        fmt::format("{} is emulated: float32 kernels run and their operands and results are rounded, so the times are not those "
                    "of 16-bit hardware",
                    strategy::to_text(run_.job().request().step.precision)));
  }
}

void TrainSession::print_notes() const {
  if (const std::string shared = run_.job().oversubscription(); !shared.empty()) {
    note(shared);
  }
  if (to_stdout_) {
    print_arithmetic();
  }
  if (to_stdout_) {
    fmt::print("{}", unused_note(run_.job()));
    for (const std::string& remark : model::remarks_on(words_.job.model)) {
      note(printable(remark));
    }
    if (const std::string classes = classes_note(run_.job()); !classes.empty()) {
      note(classes);
    }
    if (run_.steps_before() > 0) {
      fmt::print("continues from {}, step {}\n", saving_->last(), run_.steps_before());
    }
  }
  for (const std::string& difference : saving_->differences()) {
    note(printable(difference) + " since that checkpoint");
  }
  if (words_.resume && saving_->last().empty()) {
    note(fmt::format("there is no checkpoint in {}; training starts at step 1", printable(words_.checkpoint)));
  }
  if (const std::string rate = rate_note(run_.job(), length_.steps); to_stdout_ && !rate.empty()) {
    note(rate);
  }
}

bool TrainSession::train_stretch() {
  const std::int64_t begin = steps_done();
  const std::int64_t stretch = evaluating_->stretch(saving_->stretch(left_ - begin), run_.steps_before() + begin);
  run_stretch(stretch);
  interrupt_->begin_saving();
  // Whichever rank was interrupted, all have ended after the same step.
  asked_ = interrupt_->exit_code_anywhere(world());
  stop_requested_ = steps_done() < begin + stretch || asked_ != 0;
  stretch_begin_ = 0;
  print_steps(steps_done(), run_.step_times(), run_.losses(), run_.data_waits());
  if (first_broken(run_.losses())) {
    return false;  // nothing is saved of it
  }
  const std::int64_t done = run_.steps_before() + steps_done();
  if ((stop_requested_ || saving_->due(done, length_.steps)) && !save()) {
    return false;
  }
  if (!stop_requested_ && evaluating_->due(done, length_.steps)) {
    print_lines(done == length_.steps ? lines_->finish() : std::vector<std::string>());
    evaluate(done);
    asked_ = interrupt_->exit_code_anywhere(world());
    stop_requested_ = asked_ != 0 && done < length_.steps;
    return !stop_requested_ || save();
  }
  return true;
}

void TrainSession::run_stretch(std::int64_t stretch) {
  stretch_begin_ = run_.losses().size();
  const auto begin = static_cast<std::int64_t>(stretch_begin_);
  std::int64_t whole = begin;  // steps that are done, of this run
  try {
    run_.run(
        stretch, std::clamp<std::int64_t>(warmup_ - begin, 0, stretch),
        [&](std::int64_t done, const exec::RunResult& so_far) {
          print_steps(begin + done, so_far.step_times, so_far.losses, so_far.data_waits);
          bar_->show(begin + done);
          whole = begin + done;
          return !interrupt_->asked() && !first_broken(so_far.losses);
        },
        true);
  } catch (const Stopped&) {
    bar_->clear();
    // Ranks may have noticed different numbers of steps, and say the same.
    const std::string after = world().alone() ? fmt::format(", after {} of {}", run_.steps_before() + whole, length_.steps) : "";
    throw Stopped(fmt::format("stopped in the middle of a step{}; {}", after, what_is_saved(words_, *saving_)));
  }
}

bool TrainSession::save() {
  unsavable_ = saving_->save();
  return unsavable_.empty();
}

void TrainSession::evaluate(std::int64_t step) {
  std::optional<training::Evaluation> evaluation;
  try {
    evaluation = evaluating_->evaluate([&](std::int64_t, std::int64_t) {
      return world().alone() ? !interrupt_->asked() : true;  // ranks stop together, after it
    });
  } catch (const Stopped&) {
    check(interrupt_->asked(), "an evaluation was stopped without an interrupt");
  }
  interrupt_->begin_saving();
  bar_->clear();
  if (!evaluation) {
    exit_code_ = interrupt_->exit_code();
    fmt::print(stderr, "baton: the evaluation at step {} was interrupted, so it has no result{}\n", step,
               saving_->last().empty() ? "" : "; it is repeated when the training continues");
    return;
  }
  const std::string line = lines_->add(*evaluation);
  if (prints_steps_) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  if (words_.keep_best) {
    saving_->save_if_best(*evaluation);
  }
}

void TrainSession::print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (prints_steps_ && log_every_ > 0) {
      bar_->clear();
      fmt::print("{}\n", line);
      std::fflush(stdout);
    }
  }
}

void TrainSession::print_steps(std::int64_t done, const std::vector<Nanoseconds>& times, const std::vector<double>& losses,
                               const std::vector<Nanoseconds>& data_waits) {
  print_lines(lines_->add(done, static_cast<std::int64_t>(stretch_begin_), {losses, times, data_waits}));
  for (; prints_steps_ && log_every_ == 0 && shown_ < done; ++shown_) {
    bar_->clear();
    const auto at = static_cast<std::size_t>(shown_);
    fmt::print("{:>6}  {:>10}  {:>12}{}\n", run_.steps_before() + shown_ + 1, to_text(times[at - stretch_begin_]),
               loss_text(losses[at - stretch_begin_]), shown_ < warmup_ ? "  warm-up" : "");
  }
}

void TrainSession::say_how_it_ended() {
  const std::optional<std::size_t> broken = first_broken(run_.losses());
  if (broken || !unsavable_.empty()) {
    exit_code_ = 1;
    const std::int64_t last = broken ? static_cast<std::int64_t>(*broken) : steps_done() - 1;
    const std::string what = !broken                              ? unsavable_ + " is not finite"
                             : std::isnan(run_.losses()[*broken]) ? "the loss is not a number"
                                                                  : "the loss is infinite";
    if (speaks_) {
      report_divergence(run_, what, run_.steps_before() + last, saving_->last());
    }
  } else if (to_stdout_ && !words_.checkpoint.empty()) {
    fmt::print("\nCheckpoint: {}\n", saving_->last());
    if (const std::string best = saving_->best(); !best.empty()) {
      fmt::print("{}\n", best);
    }
  }
}

void TrainSession::write_results() const {
  if (!words_.json.empty()) {
    write_output(words_.json, training::result_json(run_, command_line()).dump(2) + "\n");
  }
  if (!words_.report.empty()) {
    write_output(words_.report, training_page(*lines_, command_line()));
    if (to_stdout_) {
      fmt::print("\nReport: {}\n", words_.report);
    }
  }
  if (!words_.trace.empty()) {
    write_output(words_.trace, trace::to_chrome_json(run_.plan(), run_.trace()));
    if (to_stdout_) {
      fmt::print("\nTrace: {}; open it in ui.perfetto.dev\n", words_.trace);
    }
  }
}

}  // namespace baton::app
