#include "baton/cuda/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/cuda/arena.h"
#include "baton/cuda/event.h"
#include "baton/cuda/meetings.h"
#include "baton/cuda/monitor.h"
#include "baton/cuda/rank_engine.h"
#include "baton/cuda/slice.h"
#include "baton/cuda/status.h"
#include "baton/cuda/stream_walk.h"
#include "baton/cuda/traced_steps.h"
#include "baton/exec/contents.h"

namespace baton::cuda {
namespace {

using plan::Lane;
using plan::Task;

/// Steps that may be under way at once, so that the GPU waits for none; if one takes longer than this, only one: enqueued work runs
/// to its end, and the caller that asks the run to end waits for it.
constexpr std::size_t depth = 4;
/// One more is kept, to tell how long the GPU waited between two.
constexpr std::size_t slot_count = depth + 1;
constexpr Nanoseconds long_step(50'000'000);

/// A graph is launched in one go, but if it spans several places, independent kernels wait for each other in it. Tasks longer than
/// this on average (about ten microseconds) hide the time of enqueuing them one by one.
constexpr double long_task = 1e9;  // operations

double mean_work(const plan::Plan& plan) {
  double flops = 0;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    flops += static_cast<double>(plan::work(plan, TaskId(t)).flops.count);
  }
  return flops / static_cast<double>(std::max<std::size_t>(1, plan.tasks().size()));
}

/// True if every step's tasks are enqueued one by one: if that is faster, or if the environment asks for it.
bool enqueues_tasks(const plan::Plan& plan, std::size_t places) {
  const char* word = std::getenv("BATON_CUDA_ENQUEUE");
  if (word == nullptr || *word == '\0') {
    return places > 1 && mean_work(plan) > long_task;
  }
  if (std::strcmp(word, "tasks") != 0 && std::strcmp(word, "graph") != 0) {
    throw usage_error("BATON_CUDA_ENQUEUE is '{}': choose tasks or graph, or do not set it", word);
  }
  return std::strcmp(word, "tasks") == 0;
}

class Graph {
 public:
  explicit Graph(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&ready_, graph, 0);
    cudaGraphDestroy(graph);
    require(status, "making the step's graph ready");
  }
  ~Graph() { cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const { require(cudaGraphLaunch(ready_, stream), "launching a step"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

class CudaEngine final : public exec::Engine {
 public:
  CudaEngine(const exec::Assignment& assignment, const Capability& capability)
      : plan_(assignment.plan),
        ordering_(assignment.ordering),
        data_(assignment.data),
        slice_(assignment, 0, capability),
        enqueues_each_step_(enqueues_tasks(plan_, slice_.places().size())),
        meetings_(plan_, slice_.addresses(), slice_.places(), assignment.cluster.emulated_link()),
        walk_(slice_, meetings_) {
    make_events();
    open_slots();
    enter_origin();
    if (!enqueues_each_step_) {
      step_ = capture(false);
    }
  }

  exec::RunResult run(const exec::RunOptions& options, const exec::Progress& progress) override {
    exec::RunResult result = exec::open_result(options.steps);
    const TracedSteps traced(options);
    Run run{result, progress, options.keep_result};
    run.monitors = slice_.monitors();
    unread_ = nullptr;
    keep_result_ = options.keep_result;
    try {
      enter_origin();
      load_first();
      run.stops = unread_ != nullptr;
      for (std::int64_t step = 0; step < options.steps && !run.stops; ++step) {
        collect(run, step - static_cast<std::int64_t>(depth) + 1);
        load(step);
        collect(run, traced.contains(step) ? step : step - run.ahead() + 1);
        if (run.stops) {
          break;
        }
        if (traced.contains(step)) {
          result.trace.steps.push_back(trace(run, step));
        } else {
          enqueue(step, false);
        }
        ++run.enqueued;
        run.stops = run.stops || unread_ != nullptr;
      }
      sample(run);
      collect(run, run.enqueued);
      if (run.broken) {
        slice_.synchronize();
      }
    } catch (...) {  // steps under way come to their end, and count: their weights are changed
      slice_.synchronize();
      steps_before_ += run.enqueued;
      throw;
    }
    for (const Monitor& monitor : run.monitors) {
      result.gpus.push_back(monitor.reading());
    }
    steps_before_ += run.enqueued;
    loaded_for_ = unread_ ? -1 : steps_before_;
    result.unread = run.enqueued < options.steps ? unread_
                                                 : nullptr;  // the rows after the last step are for a run that may not come
    return result;
  }

  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const override { slice_.read(id, begin, into); }
  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) override { slice_.write(id, begin, bytes); }
  void continue_from(std::int64_t steps) override {
    steps_before_ = steps;
    slice_.continue_from(steps);
  }

 private:
  /// The events and the pinned memory of one of the steps under way.
  struct Slot {
    Event start{Event::Purpose::timed};
    Event end{Event::Purpose::timed};
    Event over{Event::Purpose::order};  // its loss has come to the host
    std::int64_t losses = 0;            // offsets in pinned memory
    std::int64_t inputs = 0;
  };
  struct Run {
    exec::RunResult& result;
    const exec::Progress& progress;
    bool keep_result = false;
    std::int64_t enqueued = 0;
    std::int64_t collected = 0;
    bool stops = false;
    bool broken = false;  // by a loss that is not finite: steps after it do not count
    Nanoseconds reported = now();
    Nanoseconds sampled = now();
    std::vector<Monitor> monitors{};

    /// The number of steps that may be under way.
    std::int64_t ahead() const {
      const bool is_short = collected > 0 && result.step_times[static_cast<std::size_t>(collected - 1)] < long_step;
      return is_short ? static_cast<std::int64_t>(depth) : 1;
    }
  };

  /// The stream in which a step begins and ends: the others fork from it and join it.
  cudaStream_t origin() const { return slice_.first_place().stream(Lane::compute); }
  void enter_origin() const { slice_.first_place().enter(); }
  void enter(DeviceId device) const { slice_.place(device).enter(); }
  Slot& slot(std::int64_t step) { return *slots_[static_cast<std::size_t>(step) % slot_count]; }

  void make_events() {
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const Task& task = plan_.tasks()[t];
      enter(task.device);
      walk_.add(TaskId(t), plan::meeting_of(task).valid());
    }
    for (std::size_t d = 0; d < slice_.places().size(); ++d) {
      for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
        const bool used = !plan_.lane(DeviceId(d), static_cast<Lane>(lane)).empty();
        if (used || (d == 0 && static_cast<Lane>(lane) == Lane::compute)) {
          enter(DeviceId(d));
          lanes_.push_back({DeviceId(d), slice_.place(DeviceId(d)).stream(static_cast<Lane>(lane)),
                            std::make_unique<Event>(Event::Purpose::order), nullptr});
        }
      }
    }
    for (std::size_t m = 0; m < plan_.meeting_count(); ++m) {
      walk_.add_meeting(MeetingId(m));
    }
  }

  void open_slots() {
    std::int64_t losses = 0;
    for (const BufferId id : data_.losses) {
      losses += plan_[id].size().count;
    }
    std::int64_t inputs = 0;
    for (const std::vector<BufferId>* list : {&data_.loaded, &data_.ahead}) {
      for (const BufferId id : *list) {
        inputs += plan_[id].size().count;
      }
    }
    host_losses_ = std::make_unique<Pinned>(losses * static_cast<std::int64_t>(slot_count));
    host_inputs_ = std::make_unique<Pinned>(inputs * static_cast<std::int64_t>(slot_count));
    enter_origin();
    for (std::size_t i = 0; i < slot_count; ++i) {
      slots_.push_back(std::make_unique<Slot>());
      slots_.back()->losses = static_cast<std::int64_t>(i) * losses;
      slots_.back()->inputs = static_cast<std::int64_t>(i) * inputs;
    }
  }

  std::unique_ptr<Graph> capture(bool traced) {
    enter_origin();
    require(cudaStreamBeginCapture(origin(), cudaStreamCaptureModeRelaxed), "capturing the step");
    try {
      enqueue_step(traced);
    } catch (...) {
      cudaGraph_t broken = nullptr;
      cudaStreamEndCapture(origin(), &broken);
      if (broken != nullptr) {
        cudaGraphDestroy(broken);
      }
      cudaGetLastError();
      throw;
    }
    enter_origin();
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(origin(), &graph);
    if (status != cudaSuccess && graph != nullptr) {
      cudaGraphDestroy(graph);
    }
    require(status, "capturing the step");
    return std::make_unique<Graph>(graph);
  }

  /// The step's tasks, each after those it waits for.
  void enqueue_step(bool traced) {
    for (const LaneEnd& lane : lanes_) {  // the first is the origin's
      if (lane.stream == origin()) {
        lane.event->record(origin());
      } else {
        enter(lane.device);
        lanes_[0].event->wait(lane.stream);
        if (traced && lane.start) {
          enqueues_each_step_ ? lane.start->record(lane.stream) : lane.start->record_in_graph(lane.stream);
        }
      }
    }
    slice_.count_step();
    walk_.begin_step();
    const auto times = !traced               ? StreamWalk::Times::none
                       : enqueues_each_step_ ? StreamWalk::Times::recorded
                                             : StreamWalk::Times::in_graph;
    for (const TaskId id : ordering_.sequence) {
      const Task& task = plan_[id];
      enter(task.device);
      walk_.begin(id, times);
      if (plan::meeting_of(task).valid()) {
        walk_.arrive(id, [this, times](TaskId member) { walk_.finish(member, times); });
      } else {
        slice_.launch(id);
        walk_.finish(id, times);
      }
    }
    for (const LaneEnd& lane : lanes_) {
      if (lane.stream != origin()) {
        enter(lane.device);
        lane.event->record(lane.stream);
        enter_origin();
        lane.event->wait(origin());
      }
    }
  }

  /// Draws a step's data on the host, while others are under way.
  void load(std::int64_t step) { fill(data_.loaded, slot(step).inputs, steps_before_ + step); }

  /// Enqueues a step after those under way: its data, its tasks, its loss.
  void enqueue(std::int64_t step, bool traced) {
    Slot& one = slot(step);
    copy_filled(data_.loaded, one.inputs);
    one.start.record(origin());
    const Nanoseconds launched = now();
    if (enqueues_each_step_) {
      enqueue_step(traced);
      enter_origin();
    } else {
      (traced ? traced_step_ : step_)->launch(origin());
    }
    one.end.record(origin());
    std::int64_t offset = one.losses;
    for (const BufferId id : data_.losses) {
      const std::int64_t bytes = plan_[id].size().count;
      require(cudaMemcpyAsync(host_losses_->at(offset), slice_.address(id), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                              origin()),
              "copying the loss");
      offset += bytes;
    }
    one.over.record(origin());
    loading_.start = now() - launched;
    fill_next(one.inputs, step + 1);  // while the GPU computes
    loading_.end = now() - launched;
    copy_filled(data_.ahead, one.inputs);
  }

  /// Loads the rows that a step of this run needs ahead. If the state is wanted, rows that cannot be read end the run before that
  /// step.
  void fill_next(std::int64_t offset, std::int64_t step) {
    try {
      fill(data_.ahead, offset, steps_before_ + step);
    } catch (const Error&) {
      if (!keep_result_) {
        throw;
      }
      unread_ = std::current_exception();
    }
  }

  /// Copies the rows of a step into pinned memory, from `offset` on; and from there to the GPUs, after the steps under way.
  void fill(const std::vector<BufferId>& buffers, std::int64_t offset, std::int64_t step) const {
    for (const BufferId id : buffers) {
      data_.fill(plan_[id], host_inputs_->at(offset), step);
      offset += plan_[id].size().count;
    }
  }
  void copy_filled(const std::vector<BufferId>& buffers, std::int64_t offset) const {
    for (const BufferId id : buffers) {
      const std::int64_t bytes = plan_[id].size().count;
      require(cudaMemcpyAsync(slice_.address(id), host_inputs_->at(offset), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                              origin()),
              "copying the batch");
      offset += bytes;
    }
  }

  /// Loads ahead for the first step of a run, unless its rows are there.
  void load_first() {
    if (data_.ahead.empty() || std::exchange(loaded_for_, -1) == steps_before_) {
      return;
    }
    fill_next(slot(0).inputs, 0);
    copy_filled(data_.ahead, slot(0).inputs);
    require(cudaStreamSynchronize(origin()), "copying the batch");
  }

  /// Asks how the GPUs fare while steps are under way.
  static void sample(Run& run) {
    run.sampled = now();
    for (Monitor& monitor : run.monitors) {
      monitor.sample();
    }
  }

  /// Collects the results of the steps before `until`.
  void collect(Run& run, std::int64_t until) {
    for (; run.collected < until && !run.broken; ++run.collected) {
      Slot& one = slot(run.collected);
      one.over.synchronize();
      const bool fed = data_.feed != nullptr && run.collected > 0;
      const Nanoseconds data_wait = fed ? one.start.since(slot(run.collected - 1).end) : Nanoseconds(0);
      double loss = 0;
      const auto* rows = reinterpret_cast<const double*>(host_losses_->at(one.losses));  // one buffer's after the other's
      for (const std::size_t row : data_.loss_order) {
        loss += rows[row];
      }
      exec::add_step(run.result, loss, one.end.since(one.start), data_wait);
      if (run.keep_result && !std::isfinite(loss)) {
        run.broken = run.stops = true;
      }
      if (!run.keep_result && asked_to_stop_at_once()) {
        throw Stopped();
      }
      if (now() - run.sampled > between_samples) {
        sample(run);
      }
      if (run.progress && now() - run.reported > between_reports) {
        run.reported = now();
        run.stops = !run.progress(run.collected + 1, run.result) || run.stops;
      }
    }
  }

  /// Runs one step with events around every task.
  trace::StepTrace trace(Run& run, std::int64_t step) {
    if (!walk_[TaskId(0)].start) {
      make_timed_events();
    }
    enqueue(step, true);
    collect(run, step + 1);
    trace::StepTrace result{.duration = run.result.step_times[static_cast<std::size_t>(step)], .events = {}};
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const plan::TaskWork work = plan::work(plan_, TaskId(t));
      const Event& origin = start_on(slice_.place(plan_.tasks()[t].device).ordinal(), step);
      const bool loads = std::holds_alternative<plan::Load>(plan_.tasks()[t].action);  // done by the host
      const Nanoseconds start = std::clamp(loads ? loading_.start : walk_[TaskId(t)].start->since(origin), Nanoseconds(0),
                                           result.duration);
      const Nanoseconds end = std::clamp(loads ? loading_.end : walk_[TaskId(t)].end->since(origin), start, result.duration);
      result.events.push_back({start, end, work.sent, work.received});
    }
    return result;
  }

  void make_timed_events() {
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      enter(plan_.tasks()[t].device);
      walk_.add_times(TaskId(t));
    }
    std::set<int> known{slice_.first_place().ordinal()};
    for (LaneEnd& lane : lanes_) {
      if (known.insert(slice_.place(lane.device).ordinal()).second) {
        enter(lane.device);
        lane.start = std::make_unique<Event>(Event::Purpose::timed);
      }
    }
    if (!enqueues_each_step_) {
      traced_step_ = capture(true);
    }
  }

  /// The event that a GPU's times of a traced step count from, since one GPU's clock says nothing of another's: the step's own, or,
  /// of other GPUs than the first, when theirs have heard that it has begun.
  const Event& start_on(int ordinal, std::int64_t step) {
    for (const LaneEnd& lane : lanes_) {
      if (lane.start && slice_.place(lane.device).ordinal() == ordinal) {
        return *lane.start;
      }
    }
    return slot(step).start;
  }

  /// A stream that the plan uses, and the event by which it joins.
  struct LaneEnd {
    DeviceId device;
    cudaStream_t stream;
    std::unique_ptr<Event> event;
    std::unique_ptr<Event> start;  // begins a traced step, in the first lane of each GPU but the first
  };

  plan::Plan plan_;
  plan::Ordering ordering_;
  exec::StepData data_;
  Slice slice_;
  bool enqueues_each_step_;  // every step, and not launched as a graph
  Meetings meetings_;
  StreamWalk walk_;
  std::vector<LaneEnd> lanes_;
  std::unique_ptr<Pinned> host_losses_;
  std::unique_ptr<Pinned> host_inputs_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::unique_ptr<Graph> step_;
  std::unique_ptr<Graph> traced_step_;
  std::int64_t steps_before_ = 0;
  std::int64_t loaded_for_ = -1;  // the step whose rows are there
  bool keep_result_ = false;      // that of the current run
  std::exception_ptr unread_;     // the feed's error for the rows of the next step
  struct {
    Nanoseconds start;
    Nanoseconds end;
  } loading_;  // when the rows of the step enqueued last were loaded, since it was launched
};

}  // namespace

std::unique_ptr<exec::Engine> make_engine(exec::Assignment assignment, const Capability& capability) {
  if (assignment.world != nullptr && !assignment.world->alone()) {
    return make_rank_engine(std::move(assignment), capability);
  }
  return std::make_unique<CudaEngine>(assignment, capability);
}

}  // namespace baton::cuda
