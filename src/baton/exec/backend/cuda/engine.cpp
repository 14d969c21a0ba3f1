#include "baton/exec/backend/cuda/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/copy.h"
#include "baton/exec/backend/cuda/cublas_lt.h"
#include "baton/exec/backend/cuda/event.h"
#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/launch.h"
#include "baton/exec/backend/cuda/meetings.h"
#include "baton/exec/backend/cuda/monitor.h"
#include "baton/exec/backend/cuda/place.h"
#include "baton/exec/backend/cuda/status.h"
#include "baton/exec/clock.h"

namespace baton::exec::cuda {
namespace {

using plan::Lane;
using plan::Task;

/// Steps that may be under way at once.
constexpr std::size_t depth = 4;
/// Of the warm-up, at most so many steps are traced.
constexpr std::int64_t most_traced = 3;
constexpr Nanoseconds between_reports(50'000'000);
constexpr Nanoseconds between_samples(250'000'000);

/// A graph is launched in one go, but where it spans several places, kernels that have nothing to do with each other wait for each
/// other in it. Tasks longer than this on average (about ten microseconds) hide what it takes to enqueue them one by one.
constexpr double long_task = 1e9;  // operations

double mean_work(const plan::Plan& plan) {
  double flops = 0;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    flops += static_cast<double>(plan::work(plan, TaskId(t)).flops.count);
  }
  return flops / static_cast<double>(std::max<std::size_t>(1, plan.tasks().size()));
}

/// Memory of one device.
class Arena {
 public:
  Arena(const Place& place, Bytes size) {
    place.enter();
    std::size_t free = 0;
    std::size_t total = 0;
    require(cudaMemGetInfo(&free, &total), "asking for its memory");
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 256));
    if (cudaMalloc(reinterpret_cast<void**>(&base_), bytes) != cudaSuccess) {
      cudaGetLastError();
      throw failure("GPU {} has {} of memory free, but a device of the plan needs {}", place.ordinal(),
                    to_text(Bytes(static_cast<std::int64_t>(free))), to_text(size));
    }
    noise(DType::f32, base_, static_cast<std::int64_t>(bytes / 4), place.stream(Lane::compute));
    require(cudaStreamSynchronize(place.stream(Lane::compute)), "filling its memory");
  }
  ~Arena() { cudaFree(base_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* at(std::int64_t offset) const { return base_ + offset; }

 private:
  std::byte* base_ = nullptr;
};

/// Host memory that the GPU reads and writes on its own.
class Pinned {
 public:
  explicit Pinned(std::int64_t bytes) {
    if (bytes > 0) {
      require(cudaMallocHost(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(bytes)), "taking host memory");
    }
  }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  std::byte* at(std::int64_t offset) const { return data_ + offset; }

 private:
  std::byte* data_ = nullptr;
};

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

/// The events of a task: where others wait for it, and where a traced step reads the time.
struct TaskEvents {
  std::unique_ptr<Event> come;  // a member has come to its meeting
  std::unique_ptr<Event> done;
  std::unique_ptr<Event> start;
  std::unique_ptr<Event> end;
};

class CudaEngine final : public Engine {
 public:
  CudaEngine(Assignment assignment, const Capability& capability)
      : plan_(assignment.plan),
        ordering_(std::move(assignment.ordering)),
        memory_(std::move(assignment.memory)),
        data_(std::move(assignment.data)),
        places_(open_places(assignment.cluster)),
        enqueued_anew_(places_.size() > 1 && mean_work(plan_) > long_task) {
    for (std::size_t d = 0; d < places_.size(); ++d) {
      arenas_.push_back(std::make_unique<Arena>(*places_[d], memory_.peak[d]));
    }
    count_steps();
    prepare(capability);
    meetings_ = std::make_unique<Meetings>(plan_, addresses_, places_, assignment.cluster.emulated_link());
    make_events();
    fill_all();
    open_slots();
    enter_origin();
    if (!enqueued_anew_) {
      step_ = capture(false);
    }
  }

  ~CudaEngine() override {
    for (const std::unique_ptr<Place>& place : places_) {
      place->enter();
      cudaDeviceSynchronize();
    }
    for (std::int64_t* step : steps_) {
      cudaFree(step);
    }
    cudaSetDevice(places_[0]->ordinal());
  }

  RunResult run(const RunOptions& options, const Progress& progress) override {
    RunResult result;
    const auto steps = static_cast<std::size_t>(options.steps);
    result.losses.assign(steps, 0);
    result.step_times.assign(steps, Nanoseconds(0));
    result.peak = memory_.peak;
    const std::int64_t warmup = std::min(options.warmup, options.steps);
    const std::int64_t traced = warmup > 0 ? std::min(warmup, most_traced) : std::min<std::int64_t>(1, options.steps);
    const std::int64_t first_traced = std::max<std::int64_t>(warmup - traced, 0);
    Run run{result, progress};
    std::set<int> ordinals;
    for (const std::unique_ptr<Place>& place : places_) {
      if (ordinals.insert(place->ordinal()).second) {
        run.monitors.emplace_back(place->ordinal());
      }
    }
    enter_origin();
    for (std::int64_t step = 0; step < options.steps && !run.enough; ++step) {
      if (step >= first_traced && step < first_traced + traced) {
        collect(run, step);
        result.trace.steps.push_back(trace(run, step));
      } else {
        collect(run, step - static_cast<std::int64_t>(depth) + 1);
        enqueue(step, false);
      }
      ++run.enqueued;
    }
    sample(run);
    collect(run, run.enqueued);
    for (const Monitor& monitor : run.monitors) {
      result.gpus.push_back(monitor.reading());
    }
    steps_before_ += run.collected;
    result.losses.resize(static_cast<std::size_t>(run.collected));
    result.step_times.resize(static_cast<std::size_t>(run.collected));
    return result;
  }

  std::vector<double> read(BufferId id) const override {
    const plan::Buffer& buffer = plan_[id];
    std::vector<std::byte> memory(static_cast<std::size_t>(buffer.size().count));
    require(cudaMemcpy(memory.data(), address(id), memory.size(), cudaMemcpyDeviceToHost), "copying");
    return read_elements(buffer, memory.data());
  }

  void write(BufferId id, std::span<const double> elements) override {
    const plan::Buffer& buffer = plan_[id];
    std::vector<std::byte> memory(static_cast<std::size_t>(buffer.size().count));
    write_elements(buffer, memory.data(), elements);
    copy_to_device(address(id), memory.data(), memory.size());
  }

  void continue_from(std::int64_t steps) override {
    steps_before_ = steps;
    for (std::int64_t* step : steps_) {
      if (step != nullptr) {
        copy_to_device(step, &steps, sizeof steps);
      }
    }
  }

 private:
  /// What one of the steps under way needs on the host.
  struct Slot {
    Event start{Event::Kind::timed};
    Event end{Event::Kind::timed};
    Event over{Event::Kind::order};  // its loss has come to the host
    std::int64_t losses = 0;         // offsets in pinned memory
    std::int64_t inputs = 0;
  };
  struct Run {
    RunResult& result;
    const Progress& progress;
    std::int64_t enqueued = 0;
    std::int64_t collected = 0;
    bool enough = false;
    Nanoseconds reported = now();
    Nanoseconds sampled = now();
    std::vector<Monitor> monitors{};
  };

  std::byte* address(BufferId id) const { return arenas_[plan_[id].device.index()]->at(memory_.offset[id.index()]); }
  cudaStream_t stream(const Task& task) const { return places_[task.device.index()]->stream(task.lane); }
  /// Where a step begins and ends: the others fork from it and join it.
  cudaStream_t origin() const { return places_[0]->stream(Lane::compute); }
  void enter_origin() const { places_[0]->enter(); }
  Slot& slot(std::int64_t step) { return *slots_[static_cast<std::size_t>(step) % depth]; }

  /// Optimizers that need the number of the step read it on their device.
  void count_steps() {
    steps_.assign(places_.size(), nullptr);
    for (const Task& task : plan_.tasks()) {
      const auto* update = std::get_if<plan::Update>(&task.action);
      std::int64_t*& step = steps_[task.device.index()];
      if (update != nullptr && std::holds_alternative<op::Adam>(update->optimizer) && step == nullptr) {
        places_[task.device.index()]->enter();
        require(cudaMalloc(reinterpret_cast<void**>(&step), sizeof(*step)), "taking memory");
        const std::int64_t none = 0;
        copy_to_device(step, &none, sizeof none);
      }
    }
  }

  void prepare(const Capability& capability) {
    for (const std::unique_ptr<Place>& place : places_) {
      place->enter();
      blas_.push_back(std::make_unique<BlasLt>(*place));
    }
    const std::vector<bool> early = reads_old_weights();
    addresses_.resize(plan_.tasks().size());
    launches_.resize(plan_.tasks().size());
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const Task& task = plan_.tasks()[t];
      const std::size_t d = task.device.index();
      Addresses& list = addresses_[t];
      for (const BufferId id : task.reads) {
        list.reads.push_back(address(id));
      }
      for (const BufferId id : task.writes) {
        list.writes.push_back(address(id));
      }
      list.workspace = arenas_[d]->at(memory_.workspace[t]);
      if (!plan::meeting_of(task).valid()) {
        places_[d]->enter();
        launches_[t] = prepare_launch(plan_, task, list, {*places_[d], capability, *blas_[d], steps_[d], early[t]});
      }
    }
    for (const std::unique_ptr<Place>& place : places_) {
      place->enter();
      require(cudaStreamSynchronize(place->stream(Lane::compute)), "choosing algorithms");
    }
  }

  /// By task: whether the parameters it touches keep what they held before the step until it starts.
  std::vector<bool> reads_old_weights() const {
    std::vector<bool> old(plan_.tasks().size(), true);
    std::vector<bool> written(plan_.buffers().size(), false);
    for (const TaskId id : ordering_.sequence) {
      for (const std::vector<BufferId>* list : {&plan_[id].reads, &plan_[id].writes}) {
        for (const BufferId buffer : *list) {
          const bool weight = plan_[buffer].shape.rank() == 2 && std::holds_alternative<plan::ParameterPart>(plan_[buffer].content);
          if (weight && (!plan_[buffer].persistent || written[buffer.index()])) {
            old[id.index()] = false;
          }
        }
      }
      for (const BufferId buffer : plan_[id].writes) {
        written[buffer.index()] = true;
      }
    }
    return old;
  }

  void make_events() {
    events_.resize(plan_.tasks().size());
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const Task& task = plan_.tasks()[t];
      places_[task.device.index()]->enter();
      if (plan::meeting_of(task).valid()) {
        events_[t].come = std::make_unique<Event>(Event::Kind::order);
      }
      events_[t].done = std::make_unique<Event>(Event::Kind::order);
    }
    for (std::size_t d = 0; d < places_.size(); ++d) {
      for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
        const bool used = !plan_.lane(DeviceId(d), static_cast<Lane>(lane)).empty();
        if (used || (d == 0 && static_cast<Lane>(lane) == Lane::compute)) {
          places_[d]->enter();
          lanes_.push_back({d, places_[d]->stream(static_cast<Lane>(lane)), std::make_unique<Event>(Event::Kind::order)});
        }
      }
    }
  }

  /// Host threads draw the contents of the buffers and send them over.
  void fill_all() {
    std::vector<BufferId> list;
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      if (plan_.buffers()[b].persistent) {
        list.push_back(BufferId(b));
      }
    }
    std::atomic<std::size_t> next{0};
    std::exception_ptr failed;
    std::mutex mutex;
    const auto work = [&] {
      try {
        std::vector<std::byte> memory;
        for (std::size_t i = next++; i < list.size(); i = next++) {
          const plan::Buffer& buffer = plan_[list[i]];
          memory.resize(static_cast<std::size_t>(buffer.size().count));
          fill_initial(buffer, memory.data(), data_.source, 0);
          require(cudaSetDevice(places_[buffer.device.index()]->ordinal()), "selecting it");
          copy_to_device(address(list[i]), memory.data(), memory.size());
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
      }
    };
    const std::size_t helpers = std::min<std::size_t>({list.size(), std::max(1U, std::thread::hardware_concurrency()), 16});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < helpers; ++i) {
      threads.emplace_back(work);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failed) {
      std::rethrow_exception(failed);
    }
  }

  void open_slots() {
    std::int64_t losses = 0;
    for (const BufferId id : data_.losses) {
      losses += plan_[id].size().count;
    }
    std::int64_t inputs = 0;
    for (const BufferId id : data_.loaded) {
      inputs += plan_[id].size().count;
    }
    host_losses_ = std::make_unique<Pinned>(losses * static_cast<std::int64_t>(depth));
    host_inputs_ = std::make_unique<Pinned>(inputs * static_cast<std::int64_t>(depth));
    enter_origin();
    for (std::size_t i = 0; i < depth; ++i) {
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
      throw;
    }
    enter_origin();
    cudaGraph_t graph = nullptr;
    require(cudaStreamEndCapture(origin(), &graph), "capturing the step");
    return std::make_unique<Graph>(graph);
  }

  /// The step's tasks, each after those it waits for.
  void enqueue_step(bool traced) {
    for (const LaneEnd& lane : lanes_) {  // the first is the origin's
      if (lane.stream == origin()) {
        lane.event->record(origin());
      } else {
        places_[lane.device]->enter();
        lanes_[0].event->wait(lane.stream);
      }
    }
    for (std::size_t d = 0; d < places_.size(); ++d) {
      if (steps_[d] != nullptr) {
        places_[d]->enter();
        count_step(steps_[d], places_[d]->stream(Lane::compute));
      }
    }
    std::vector<std::uint32_t> missing(plan_.meeting_count());
    for (std::size_t m = 0; m < missing.size(); ++m) {
      missing[m] = static_cast<std::uint32_t>(plan_.members(MeetingId(m)).size());
    }
    for (const TaskId id : ordering_.sequence) {
      const Task& task = plan_[id];
      const TaskEvents& events = events_[id.index()];
      places_[task.device.index()]->enter();
      for (const TaskId other : task.after) {
        events_[other.index()].done->wait(stream(task));
      }
      if (traced) {
        record_time(*events.start, stream(task));
      }
      const MeetingId meeting = plan::meeting_of(task);
      if (!meeting.valid()) {
        launches_[id.index()](stream(task));
        require_launched("launching a task");
        finish(id, traced);
        continue;
      }
      events.come->record(stream(task));
      if (--missing[meeting.index()] == 0) {
        meet(meeting, traced);
      }
    }
    for (const LaneEnd& lane : lanes_) {
      if (lane.stream != origin()) {
        places_[lane.device]->enter();
        lane.event->record(lane.stream);
        enter_origin();
        lane.event->wait(origin());
      }
    }
  }

  /// All members have come: each does its part, and goes on when all are done.
  void meet(MeetingId meeting, bool traced) {
    const std::span<const TaskId> members = plan_.members(meeting);
    std::vector<cudaStream_t> streams;
    for (const TaskId member : members) {
      streams.push_back(stream(plan_[member]));
      places_[plan_[member].device.index()]->enter();
      for (const TaskId other : members) {
        if (other != member) {
          events_[other.index()].come->wait(streams.back());
        }
      }
    }
    meetings_->enqueue(meeting, streams);
    require_launched("launching a message");
    for (const TaskId member : members) {
      places_[plan_[member].device.index()]->enter();
      events_[member.index()].come->record(stream(plan_[member]));  // again: its part is done
    }
    for (const TaskId member : members) {
      places_[plan_[member].device.index()]->enter();
      for (const TaskId other : members) {
        if (other != member) {
          events_[other.index()].come->wait(stream(plan_[member]));
        }
      }
      finish(member, traced);
    }
  }

  void record_time(Event& event, cudaStream_t stream) const {
    enqueued_anew_ ? event.record(stream) : event.record_in_graph(stream);
  }

  void finish(TaskId id, bool traced) {
    const TaskEvents& events = events_[id.index()];
    if (traced) {
      record_time(*events.end, stream(plan_[id]));
    }
    events.done->record(stream(plan_[id]));
  }

  /// Puts a step behind those under way: its data, its tasks, its loss.
  void enqueue(std::int64_t step, bool traced) {
    Slot& one = slot(step);
    std::int64_t offset = one.inputs;
    const std::int64_t first = data_.first_sample(steps_before_ + step);
    for (const BufferId id : data_.loaded) {
      const std::int64_t bytes = plan_[id].size().count;
      fill_initial(plan_[id], host_inputs_->at(offset), data_.source, first);
      require(
          cudaMemcpyAsync(address(id), host_inputs_->at(offset), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, origin()),
          "copying the batch");
      offset += bytes;
    }
    one.start.record(origin());
    if (enqueued_anew_) {
      enqueue_step(traced);
      enter_origin();
    } else {
      (traced ? traced_step_ : step_)->launch(origin());
    }
    one.end.record(origin());
    offset = one.losses;
    for (const BufferId id : data_.losses) {
      const std::int64_t bytes = plan_[id].size().count;
      require(
          cudaMemcpyAsync(host_losses_->at(offset), address(id), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, origin()),
          "copying the loss");
      offset += bytes;
    }
    one.over.record(origin());
  }

  /// Asks how the GPUs fare while steps are under way.
  static void sample(Run& run) {
    run.sampled = now();
    for (Monitor& monitor : run.monitors) {
      monitor.sample();
    }
  }

  /// Takes in what the steps before `until` left.
  void collect(Run& run, std::int64_t until) {
    for (; run.collected < until; ++run.collected) {
      Slot& one = slot(run.collected);
      one.over.synchronize();
      const auto step = static_cast<std::size_t>(run.collected);
      run.result.step_times[step] = one.end.since(one.start);
      double loss = 0;
      std::int64_t offset = one.losses;
      for (const BufferId id : data_.losses) {
        const auto* rows = reinterpret_cast<const double*>(host_losses_->at(offset));
        for (std::int64_t r = 0; r < plan_[id].shape.elements(); ++r) {
          loss += rows[r];
        }
        offset += plan_[id].size().count;
      }
      run.result.losses[step] = loss;
      if (now() - run.sampled > between_samples) {
        sample(run);
      }
      if (run.progress && now() - run.reported > between_reports) {
        run.reported = now();
        run.enough = !run.progress(run.collected + 1, run.result) || run.enough;
      }
    }
  }

  /// Runs one step with events around every task.
  trace::StepTrace trace(Run& run, std::int64_t step) {
    if (!events_[0].start) {
      for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
        places_[plan_.tasks()[t].device.index()]->enter();
        events_[t].start = std::make_unique<Event>(Event::Kind::timed);
        events_[t].end = std::make_unique<Event>(Event::Kind::timed);
      }
      if (!enqueued_anew_) {
        traced_step_ = capture(true);
      }
    }
    enqueue(step, true);
    collect(run, step + 1);
    const Slot& one = slot(step);
    trace::StepTrace result{.duration = run.result.step_times[static_cast<std::size_t>(step)], .events = {}};
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const plan::TaskWork work = plan::work(plan_, TaskId(t));
      const Nanoseconds start = std::clamp(events_[t].start->since(one.start), Nanoseconds(0), result.duration);
      const Nanoseconds end = std::clamp(events_[t].end->since(one.start), start, result.duration);
      result.events.push_back({start, end, work.sent, work.received});
    }
    return result;
  }

  /// A stream that the plan uses, and the event by which it joins.
  struct LaneEnd {
    std::size_t device;
    cudaStream_t stream;
    std::unique_ptr<Event> event;
  };

  const plan::Plan& plan_;
  plan::Ordering ordering_;
  plan::Memory memory_;
  StepData data_;
  std::vector<std::unique_ptr<Place>> places_;  // by device
  bool enqueued_anew_;                          // every step, and not launched as a graph
  std::vector<std::unique_ptr<Arena>> arenas_;  // likewise
  std::vector<std::int64_t*> steps_;            // likewise: the number of the step, where something needs it
  std::vector<std::unique_ptr<BlasLt>> blas_;   // likewise
  std::vector<Addresses> addresses_;            // by task
  std::vector<Launch> launches_;                // likewise
  std::vector<TaskEvents> events_;              // likewise
  std::unique_ptr<Meetings> meetings_;
  std::vector<LaneEnd> lanes_;
  std::unique_ptr<Pinned> host_losses_;
  std::unique_ptr<Pinned> host_inputs_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::unique_ptr<Graph> step_;
  std::unique_ptr<Graph> traced_step_;
  std::int64_t steps_before_ = 0;
};

}  // namespace

std::unique_ptr<Engine> make_engine(Assignment assignment, const Capability& capability) {
  return std::make_unique<CudaEngine>(std::move(assignment), capability);
}

}  // namespace baton::exec::cuda
