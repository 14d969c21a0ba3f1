#include "baton/training/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/plan/memory.h"

namespace baton::training {
namespace {

/// The settings that change the course of a training, in addition to model, seed and optimizer. How it is split does not.
constexpr std::array<std::string_view, 19> settings_of_a_checkpoint{
    "batch",       "loss",      "label-smoothing", "samples",           "lr",   "momentum",  "weight-decay", "decay",
    "lr-schedule", "precision", "loss-scale",      "loss-scale-growth", "clip", "gradients", "data",         "tokenizer",
    "token-type",  "normalize", "augment"};

/// True if a field has the value that a checkpoint says it had: "0.10" and "1e-1" are the same.
bool has_value(const JobField& field, const JobSpec& spec, const std::string& then) {
  JobSpec before = spec;
  try {
    then.empty() ? field.reset(before) : field.set(before, then);
  } catch (const Error&) {  // a value that this program does not take
    return false;
  }
  return canonical(field.text(before)) == canonical(field.text(spec));
}

}  // namespace

Training::Training(const JobSpec& spec, const cluster::Machine& machine, const measure::Calibration::Progress& progress,
                   std::shared_ptr<ranks::World> world, const Planner& planner, JobOverrides overrides)
    : job_(std::make_unique<Job>(spec, machine, std::move(world), std::move(overrides))) {
  if (job_->simulated()) {
    open_simulation(progress, planner);
  } else {
    plan_ = planner ? planner(*job_) : job_->compile();
    executor_ = std::make_unique<exec::Executor>(*plan_, job_->cluster(), job_->backend(), job_->data_options(), job_->world());
    peak_ = executor_->peak();
    for (const plan::Totals& device : plan::totals_by_device(*plan_)) {
      totals_ += device;
      flops_ += static_cast<double>(device.work.flops.count);
    }
    scaler_ = read_scaler();
    take_pretrained(*job_, *plan_, *executor_);
  }
  study_.emplace(*plan_, copies_, simulated() ? trace::Origin::simulated : trace::Origin::measured);
}

void take_pretrained(const Job& job, const plan::Plan& plan, exec::Executor& executor) {
  if (const JobOverrides& overrides = job.overrides(); overrides.weights) {
    const Bytes size = checkpoint::room_for(checkpoint::tensors_of(plan));
    std::vector<std::byte> room(static_cast<std::size_t>(size.count));
    checkpoint::restore_weights(plan, executor, *overrides.weights, room);
  } else if (overrides.model) {
    return;
  } else if (const std::optional<model::ModelPath> path = model::path_of(job.spec().model)) {
    checkpoint::load_pretrained(*path, job.model(), plan, executor, job.world());
  }
}

void Training::open_simulation(const measure::Calibration::Progress& progress, const Planner& planner) {
  const auto limits = [&](const plan::Plan& plan) { return job_->limits(plan); };
  job::LaidOutPlan laid = planner ? job::lay_out(planner(*job_), limits)
                                  : job::lay_out(job_->request(), job_->imagined() ? job_->fold_beyond() : job::never_fold, limits,
                                                 job::Unfolded::written_out, job_->machine().memory);
  plan_ = std::move(laid.plan);
  copies_ = laid.copies();
  totals_ = laid.totals;
  flops_ = laid.flops;
  peak_ = std::move(laid.peak);
  simulation_ = std::make_unique<Simulation>(*job_, *plan_, std::move(laid.stands_for), progress);
}

void Training::make_room_for_checkpoints() {
  check(executor_ != nullptr, "a simulated training has no weights");
  checkpoint::require_readable(tensors(), metadata());
  const Bytes room = checkpoint::room_for(tensors());
  for (std::size_t d = 0; d < peak_.size(); ++d) {
    const cluster::Device& device = job_->cluster().devices()[d];
    if (!device.gpu && peak_[d] + room > device.memory) {
      throw usage_error("{} needs {}, and {} more to save checkpoints, but has {}", device.name, to_text(peak_[d]), to_text(room),
                        to_text(device.memory));
    }
  }
  room_size_ = static_cast<std::size_t>(room.count);
  room_.reset(new std::byte[room_size_]);
}

checkpoint::Tensors Training::tensors() const { return checkpoint::tensors_of(*plan_); }

checkpoint::Metadata Training::metadata() const {
  checkpoint::TrainingState progress{.step = steps_before_ + static_cast<std::int64_t>(losses_.size()),
                                     .seed = job_->seed(),
                                     .model = checkpoint::kept_name(job_->model().name()),
                                     .optimizer = job_->spec().optimizer,
                                     .settings = {}};
  for (const JobField& field : job_fields()) {
    for (const std::string_view name : settings_of_a_checkpoint) {
      if (field.name == name && !(field.topic == job::Topic::data && job_->data() == nullptr)) {
        progress.settings[field.name] = field.text(job_->spec());
      }
    }
  }
  checkpoint::Metadata metadata = checkpoint::to_metadata(progress);
  if (job_->data() != nullptr) {
    if (const std::vector<std::string>& names = job_->data()->training()->source().description().class_names; !names.empty()) {
      metadata[checkpoint::class_names_key] = fmt::format("{}", fmt::join(names, "\n"));
    }
  }
  return metadata;
}

std::string Training::save(const std::function<void(std::span<const std::byte> tensor)>& visit) const {
  return checkpoint::for_each_tensor(*plan_, *executor_, std::span(room_.get(), room_size_), visit);
}

std::vector<std::string> Training::restore(const checkpoint::TensorReader& source) {
  check(executor_ != nullptr && losses_.empty(), "a training that has started cannot be restored from a checkpoint");
  const checkpoint::TrainingState progress = checkpoint::training_state_of(source);
  if (progress.seed != job_->seed()) {
    throw usage_error("the checkpoint was trained on the data of seed {}, but --seed is {}", progress.seed, job_->seed());
  }
  if (canonical(progress.optimizer) != canonical(job_->spec().optimizer)) {
    throw usage_error("the checkpoint was trained with --optimizer {}, but this run has {}", progress.optimizer,
                      job_->spec().optimizer);
  }
  checkpoint::require_model(source, job_->model());
  std::vector<std::string> differences;
  const std::string model = checkpoint::kept_name(job_->model().name());
  if (canonical(checkpoint::kept_name(progress.model)) != canonical(model)) {  // the same network: dropout, the size of images
    differences.push_back(fmt::format("--model was {} and is {}", progress.model, model));
  }
  for (const JobField& field : job_fields()) {
    const auto then = progress.settings.find(field.name);
    const std::string now = field.text(job_->spec());
    const auto shown = [](const std::string& value) { return value.empty() ? "its default" : value; };
    if (then != progress.settings.end() && !has_value(field, job_->spec(), then->second)) {
      if (field.name == "batch" && job_->data() != nullptr) {
        throw usage_error("the checkpoint's place in the data is counted in batches of {}: keep --batch {}", shown(then->second),
                          shown(then->second));
      }
      differences.push_back(fmt::format("--{} was {} and is {}", field.name, shown(then->second), shown(now)));
    }
  }
  checkpoint::restore(*plan_, *executor_, source, std::span(room_.get(), room_size_));
  steps_before_ = progress.step;
  scaler_ = read_scaler();
  return differences;
}

std::optional<Evaluation> Training::evaluate(Forward& forward, const SampleFeed& feed,
                                             const std::function<bool(std::int64_t done, std::int64_t of)>& go_on) {
  forward.take_weights(*plan_, *executor_);
  std::optional<Evaluation> evaluation = training::evaluate(forward, *job_, feed, go_on);
  if (evaluation) {
    evaluation->step = steps_before_ + static_cast<std::int64_t>(losses_.size());
    evaluations_.push_back(*evaluation);
  }
  return evaluation;
}

exec::RunResult Training::simulate() const {
  exec::RunResult result;
  result.trace.origin = trace::Origin::simulated;
  result.trace.steps.push_back(simulation_->step());
  result.step_times.push_back(result.trace.steps[0].duration);
  return result;
}

void Training::run(std::int64_t steps, std::int64_t warmup, const exec::Executor::Progress& progress, bool keep_result) {
  warmup = simulated() ? 0 : warmup;
  exec::RunResult result = simulated() ? simulate()
                                       : executor_->run({.steps = steps, .warmup = warmup, .keep_result = keep_result}, progress);
  unread_ = result.unread;
  if (unread_ && result.losses.empty()) {
    return;
  }
  const std::size_t dropped = std::min<std::size_t>(static_cast<std::size_t>(warmup), result.step_times.size());
  losses_.insert(losses_.end(), result.losses.begin(), result.losses.end());
  step_times_.insert(step_times_.end(), result.step_times.begin(), result.step_times.end());
  data_waits_.insert(data_waits_.end(), result.data_waits.begin(), result.data_waits.end());
  timed_.insert(timed_.end(), result.step_times.begin() + static_cast<std::ptrdiff_t>(dropped), result.step_times.end());
  warmup_ += static_cast<std::int64_t>(dropped);
  gpus_ = result.gpus;
  for (const exec::RoundingTally& tally : result.roundings) {
    exec::add_tally(roundings_, tally);
  }
  for (const trace::StepTrace& step : result.trace.steps) {
    study_->add(step);
  }
  trace_ = std::move(result.trace);
  clocks_ = std::move(result.clocks);
  scaler_ = read_scaler();
}

std::vector<Bytes> Training::buffer_bytes() const {
  std::vector<plan::Task> tasks = plan_->tasks();
  for (plan::Task& task : tasks) {
    task.workspace = Bytes(0);
  }
  const plan::Plan bare(plan_->title(), plan_->devices(), plan_->buffers(), std::move(tasks));
  return plan::plan_memory(bare, plan::order(bare)).peak;
}

bool Training::emulated() const {
  return !job_->imagined() &&
         (!job_->backend().is_native(strategy::dtype_of(job_->request().step.precision)) || !emulated_products().empty());
}

std::string Training::emulated_products() const {
  std::set<std::string_view> kinds;
  for (std::size_t t = 0; t < plan_->tasks().size() && !job_->imagined(); ++t) {
    const plan::Task& task = plan_->tasks()[t];
    if (plan::is_product(task) && job_->backend().emulates(*plan_, task)) {
      kinds.insert(op::kind_of_product(std::get<plan::Compute>(task.action).op));
    }
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::string Training::arithmetic() const { return job_->imagined() ? "" : exec::arithmetic_of(*plan_, job_->backend()); }

std::optional<op::ScaleState> Training::read_scaler() const {
  for (std::size_t b = 0; b < plan_->buffers().size() && !simulated(); ++b) {
    if (std::holds_alternative<plan::LossScaler>(plan_->buffers()[b].content)) {
      const std::vector<double> state = executor_->read(BufferId(b));
      return op::ScaleState{static_cast<float>(state[0]), static_cast<float>(state[1]), static_cast<float>(state[2]),
                            static_cast<float>(state[3])};
    }
  }
  return std::nullopt;
}

}  // namespace baton::training
