#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/checkpoint/checkpoint.h"
#include "baton/exec/executor.h"
#include "baton/job/study.h"
#include "baton/op/loss_scale.h"
#include "baton/trace/analysis.h"
#include "baton/training/evaluation.h"
#include "baton/training/job.h"
#include "baton/training/simulation.h"

namespace baton::training {

/// A job being trained and measured, in one run or in several that continue each other; or, if its specification names a cluster,
/// simulated: then one step stands for all, and there are no losses.
class Training {
 public:
  /// Makes the plan of a job, in place of compiling its strategy.
  using Planner = std::function<plan::Plan(const Job& job)>;

  /// Compiles and verifies the plan and takes the memory; a usage error says why it cannot be run. `progress` is
  /// called while a simulation of this machine times its tasks first.
  /// With several ranks all construct one and call the same functions in the same order; each has losses and step times, rank 0
  /// also has the rest.
  Training(const JobSpec& spec, const cluster::Machine& machine, const measure::Calibration::Progress& progress = {},
           std::shared_ptr<ranks::World> world = nullptr, const Planner& planner = {}, JobOverrides overrides = {});

  const Job& job() const { return *job_; }
  const plan::Plan& plan() const { return *plan_; }

  bool simulated() const { return simulation_ != nullptr; }
  /// The number of devices that each one of the plan stands for: one, unless equal replicas were folded.
  std::int64_t copies() const { return copies_; }
  /// Only for a simulated job.
  const Simulation& simulation() const { return *simulation_; }

  /// Steps done before the first run: those of the checkpoint that it continued from.
  std::int64_t steps_before() const { return steps_before_; }
  /// Allocates the memory that saving and restoring need, so that neither can fail for lack of it; a usage error if that exceeds a
  /// device's limit, or if a checkpoint of the model could not be read back.
  void make_room_for_checkpoints();
  /// The contents of a checkpoint of the current state.
  checkpoint::Tensors tensors() const;
  checkpoint::Metadata metadata() const;
  /// Weights and optimizer state as they are now, tensor by tensor, in the order of `checkpoint::for_each_tensor`.
  std::string save(const std::function<void(std::span<const std::byte> tensor)>& visit) const;
  /// Continues from a checkpoint, whatever strategy it was saved under; a usage error says why it cannot. Returns in words which
  /// settings differ from those of the checkpoint's run.
  std::vector<std::string> restore(const checkpoint::TensorReader& source);

  /// Evaluates the weights as they are now, and keeps the result; stops without a result if `go_on` returns false.
  std::optional<Evaluation> evaluate(Forward& forward, const SampleFeed& feed,
                                     const std::function<bool(std::int64_t done, std::int64_t of)>& go_on = {});
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }

  /// Trains `steps` more, of which the first `warmup` are not counted.
  /// `keep_result` as in `exec::RunOptions`: rows that cannot be read end the run before their step, and `unread` has the error.
  void run(std::int64_t steps, std::int64_t warmup, const exec::Executor::Progress& progress = {}, bool keep_result = false);

  /// The Error of the data because of which the last run ended early, the same on all ranks; null if there is none.
  const std::exception_ptr& unread() const { return unread_; }

  const std::vector<double>& losses() const { return losses_; }               // one per step
  const std::vector<Nanoseconds>& step_times() const { return step_times_; }  // one per step
  const std::vector<Nanoseconds>& timed() const { return timed_; }            // the steps after a warm-up
  const std::vector<Nanoseconds>& data_waits() const { return data_waits_; }  // one per step
  /// The memory that the plan lays out, by device; of folded replicas, that of the one that needs most.
  const std::vector<Bytes>& peak() const { return peak_; }
  /// The memory that the plan takes by itself, by device, without the workspace of the kernels that run it here.
  std::vector<Bytes> buffer_bytes() const;
  std::int64_t warmup() const { return warmup_; }
  /// The work and the messages of a step on all devices, those that were folded away among them.
  const plan::Totals& totals() const { return totals_; }
  /// Its flops, even if they exceed 64 bits.
  double flops() const { return flops_; }
  /// The times of each device, by device, summed over the traced steps; `traced` is how long those steps took together.
  const std::vector<trace::DeviceTime>& device_times() const { return study_->device_times(); }
  /// The parts of a step of median length: the mean over devices and traced steps.
  trace::DeviceTime mean_time() const { return study_->mean_time(trace::spread(timed_).median); }
  Nanoseconds traced() const { return study_->traced(); }
  std::int64_t traced_steps() const { return study_->traced_steps(); }
  /// The time of the traced steps' critical paths, by kind of segment.
  const std::array<Nanoseconds, trace::PathSegment::kinds>& path() const { return study_->path(); }
  /// The arrivals of devices at collectives, on average over the traced steps; empty if fewer than two devices meet.
  std::vector<findings::ArrivalStats> arrival_stats() const { return study_->arrival_stats(); }
  const job::Study& study() const { return *study_; }
  /// The effects of rounding to 16-bit types, over all steps.
  const std::vector<exec::RoundingTally>& roundings() const { return roundings_; }
  /// True if its 16-bit format is emulated, in all of its products or in some.
  bool emulated() const;
  /// The kinds of products in 16 bits that are computed in float32 and rounded, "linear layers" or "attention,
  /// convolutions"; empty if there are none.
  std::string emulated_products() const;
  /// The unit that computes in this type (amx, portable, emulation); empty if it does not affect bits.
  std::string arithmetic() const;
  /// The current state of the loss scaler; nullopt if the loss is not scaled.
  std::optional<op::ScaleState> scaler() const { return scaler_; }
  /// The figures that the drivers of its GPUs gave during the last run.
  const std::vector<exec::GpuReading>& gpus() const { return gpus_; }
  /// The offset of each rank's clock from rank 0's during the last run, by rank; empty if one process ran.
  const std::vector<ranks::ClockFit>& clocks() const { return clocks_; }
  /// The trace of the last run.
  const trace::Trace& trace() const { return trace_; }

 private:
  std::optional<op::ScaleState> read_scaler() const;
  void open_simulation(const measure::Calibration::Progress& progress, const Planner& planner);
  exec::RunResult simulate() const;

  std::unique_ptr<Job> job_;
  std::optional<plan::Plan> plan_;
  std::unique_ptr<exec::Executor> executor_;  // null if the plan is simulated
  std::unique_ptr<Simulation> simulation_;
  std::int64_t copies_ = 1;
  std::vector<double> losses_;
  std::vector<Nanoseconds> step_times_;
  std::vector<Nanoseconds> timed_;
  std::vector<Nanoseconds> data_waits_;
  std::vector<Evaluation> evaluations_;
  std::vector<Bytes> peak_;
  plan::Totals totals_;
  double flops_ = 0;
  std::vector<exec::RoundingTally> roundings_;
  std::vector<exec::GpuReading> gpus_;
  std::vector<ranks::ClockFit> clocks_;  // by rank, of the last run
  std::optional<op::ScaleState> scaler_;
  std::int64_t warmup_ = 0;
  std::int64_t steps_before_ = 0;
  std::optional<job::Study> study_;
  trace::Trace trace_;
  std::exception_ptr unread_;
  std::unique_ptr<std::byte[]> room_;  // for one tensor; untouched until something is saved
  std::size_t room_size_ = 0;
};

/// Puts the weights into an executor of a job that has some of its own, or whose model is a folder or file that holds some; all
/// ranks call it.
void take_pretrained(const Job& job, const plan::Plan& plan, exec::Executor& executor);

}  // namespace baton::training
