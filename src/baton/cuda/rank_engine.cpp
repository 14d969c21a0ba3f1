#include "baton/cuda/rank_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/cuda/event.h"
#include "baton/cuda/meetings.h"
#include "baton/cuda/nccl.h"
#include "baton/cuda/slice.h"
#include "baton/cuda/status.h"
#include "baton/cuda/stream_transport.h"
#include "baton/cuda/stream_walk.h"
#include "baton/cuda/traced_steps.h"
#include "baton/exec/contents.h"
#include "baton/exec/rank_run.h"
#include "baton/threads/backoff.h"

namespace baton::cuda {
namespace {

using plan::Lane;
using plan::Task;

constexpr int health_every = 1000;  // idle rounds

/// A lane of one of this rank's devices, and its progress in the step.
struct LaneWalk {
  DeviceId device;
  Lane lane;
  std::span<const TaskId> tasks;
  ranks::DeviceProgress* progress;
  std::uint32_t enqueued = 0;  // tasks whose work is all in the stream
  bool begun = false;          // the next one waits for others
  std::uint32_t retired = 0;   // tasks that are done
  bool started = false;        // the next one is under way, as far as those who watch are told
};

/// The ranks between which NCCL carries data, on which all agree. NCCL reads its own variables when it is first used, so they are
/// set here, and only if every rank is to be a host to it.
NcclReach agreed_reach(ranks::World& world) {
  const NcclReach reach = agree_on(world, wanted_reach(std::getenv("BATON_CUDA_RANKS"), nccl::is_available()));
  if (reach == NcclReach::all_ranks) {
    for (const auto& [name, value] : host_variables(world)) {
      setenv(name.c_str(), value.c_str(), 0);
    }
  }
  return reach;
}

class RankEngine final : public exec::Engine {
 public:
  RankEngine(const exec::Assignment& assignment, const Capability& capability)
      : plan_(assignment.plan),
        ordering_(assignment.ordering),
        data_(assignment.data),
        link_(assignment.cluster.emulated_link()),
        world_(assignment.world),
        rank_of_device_(exec::ranks_of(assignment.cluster)),
        report_(world_, plan_, rank_of_device_, data_.losses),
        slice_(assignment, world_->rank(), capability),
        routes_(choose_routes(plan_, assignment.cluster, agreed_reach(*world_))),
        meetings_(plan_, slice_.addresses(), slice_.places(), link_),
        stream_walk_(slice_, meetings_) {
    open_transports();
    open_lanes();
    make_events();
    open_host_memory();
  }

  exec::RunResult run(const exec::RunOptions& options, const exec::Progress& progress) override {
    Run run{exec::open_result(options.steps), TracedSteps(options), slice_.monitors()};
    const std::vector<ranks::ClockReading> clocks_before = ranks::read_clocks(*world_);
    world_->progress()->show(progress_entry_);
    world_->progress()->set(ranks::Activity::training);
    try {
      run_steps(options, progress, run);
    } catch (...) {
      leave_step();
      steps_before_ += run.done;
      world_->progress()->set(ranks::Activity::between);
      throw;
    }
    wants_no_more_ = false;
    world_->progress()->set(ranks::Activity::between);
    for (const Monitor& monitor : run.monitors) {
      run.result.gpus.push_back(monitor.reading());
    }
    steps_before_ += run.done;
    loaded_for_ = run.given_up ? -1 : steps_before_;
    exec::gather_result(*world_, plan_, rank_of_device_, clocks_before, run.starts, run.result);
    return std::move(run.result);
  }

  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const override {
    const DeviceId device = plan_[id].device;
    if (slice_.is_here(device)) {
      slice_.read(id, begin, into);
    }
    exec::share_bytes(*world_, rank_of_device_[device.index()], into);
  }

  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) override {
    if (slice_.is_here(plan_[id].device)) {
      slice_.write(id, begin, bytes);
    }
  }

  void continue_from(std::int64_t steps) override {
    steps_before_ = steps;
    slice_.continue_from(steps);
  }

 private:
  /// The results of a run so far.
  struct Run {
    exec::RunResult result;
    TracedSteps traced;
    std::vector<Monitor> monitors;
    std::vector<Nanoseconds> starts = {};  // when the traced steps started
    std::int64_t done = 0;
    bool given_up = false;
  };

  void run_steps(const exec::RunOptions& options, const exec::Progress& progress, Run& run) {
    bool stops = false;
    Nanoseconds reported = now();
    Nanoseconds sampled = now();
    if (!data_.ahead.empty() && std::exchange(loaded_for_, -1) != steps_before_) {
      fill(data_.ahead, steps_before_);
      copy_filled(data_.ahead);
    }
    gather([&] { world_->barrier(); });
    for (std::int64_t step = 0; step < options.steps && !stops; ++step) {
      load(step);
      const bool traces = run.traced.contains(step);
      if (traces) {
        read_start_times();
      }
      const WalkedStep walked = walk_and_fill(step, traces);
      if (walked.whole && traces) {
        run.starts.push_back(walked.start);
        run.result.trace.steps.push_back(trace(walked.start, walked.duration));
      }
      if (walked.whole) {
        read_losses();
      } else {
        leave_step();
      }
      exec::StepReport::Summary summary;
      const bool asked = wants_no_more_ || (options.keep_result && asked_to_stop());
      gather([&] {
        summary = report_.share(
            {.duration = walked.duration, .stop_requested = asked, .given_up = !walked.whole, .changed = changed_},
            [this](BufferId id) { return rows(id); });
      });
      if (summary.given_up) {
        if (!options.keep_result || summary.changed || step == 0) {
          throw Stopped();
        }
        run.given_up = true;
        run.starts.resize(std::min(run.starts.size(), run.traced.before(step)));
        run.result.trace.steps.resize(run.starts.size());
        break;
      }
      exec::add_step(run.result, summary.loss, summary.duration, walked.data_wait);
      stops = summary.stop_requested || (options.keep_result && !std::isfinite(summary.loss));
      run.done = step + 1;
      if (now() - sampled > between_samples || run.done == options.steps) {
        sampled = now();
        std::for_each(run.monitors.begin(), run.monitors.end(), [](Monitor& monitor) { monitor.sample(); });
      }
      if (progress && (now() - reported > between_reports || run.done == 1)) {
        reported = now();
        wants_no_more_ = !progress(run.done, run.result);
      }
    }
  }

  struct WalkedStep {
    bool whole = false;  // not given up
    Nanoseconds start;
    Nanoseconds duration;
    Nanoseconds data_wait;
  };

  /// Runs the tasks of a step, while a thread fills the rows of the next one.
  WalkedStep walk_and_fill(std::int64_t step, bool traces) {
    std::exception_ptr unread;
    std::jthread loader;  // fills the rows of the next step while this one runs
    if (!data_.ahead.empty()) {
      loader = std::jthread([&] {
        try {
          fill(data_.ahead, steps_before_ + step + 1);
        } catch (...) {
          unread = std::current_exception();
        }
      });
    }
    const Nanoseconds start = now();
    const bool whole = walk(traces);
    const Nanoseconds walked = now();
    Nanoseconds data_wait(0);
    if (loader.joinable()) {
      loader.join();
      if (unread) {
        std::rethrow_exception(unread);
      }
      if (whole) {
        copy_filled(data_.ahead);
        data_wait = now() - walked;
      }
    }
    return {.whole = whole, .start = start, .duration = now() - start, .data_wait = data_wait};
  }
  void open_transports() {
    const StreamTransportContext context{slice_, ordering_, routes_, rank_of_device_, link_, world_};
    const auto has = [&](MeetingRoute route) { return std::find(routes_.begin(), routes_.end(), route) != routes_.end(); };
    staged_ = has(MeetingRoute::staged) ? make_staged_transport(context) : nullptr;
    nccl_ = has(MeetingRoute::nccl) ? make_nccl_transport(context) : nullptr;
    exchanges_.resize(plan_.tasks().size());
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const MeetingId meeting = plan::meeting_of(plan_.tasks()[t]);
      if (meeting.valid() && slice_.is_here(plan_.tasks()[t].device) && routes_[meeting.index()] != MeetingRoute::here) {
        exchanges_[t] = (routes_[meeting.index()] == MeetingRoute::nccl ? nccl_ : staged_)->prepare(TaskId(t));
      }
    }
  }

  void open_lanes() {
    std::size_t here = 0;
    progress_entry_ = world_->progress()->open(
        static_cast<std::size_t>(std::count(rank_of_device_.begin(), rank_of_device_.end(), world_->rank())));
    lane_of_.resize(plan_.tasks().size(), 0);
    for (std::size_t d = 0; d < rank_of_device_.size(); ++d) {
      if (!slice_.is_here(DeviceId(d))) {
        continue;
      }
      ranks::DeviceProgress& progress = world_->progress()->device(here++);
      progresses_.push_back(&progress);
      for (const Lane lane : plan::serving_order) {
        for (const TaskId id : plan_.lane(DeviceId(d), lane)) {
          lane_of_[id.index()] = lanes_.size();
        }
        lanes_.push_back({DeviceId(d), lane, plan_.lane(DeviceId(d), lane), &progress});
        lane_at_[{DeviceId(d), lane}] = lanes_.size() - 1;
      }
    }
    for (LaneWalk& walk : lanes_) {
      std::array<const LaneWalk*, plan::lane_count> siblings{};
      for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
        siblings[lane] = &lanes_[lane_at_.at({walk.device, static_cast<Lane>(lane)})];
      }
      siblings_.push_back(siblings);
    }
    for (std::size_t m = 0; m < plan_.meeting_count(); ++m) {
      const std::span<const TaskId> members = plan_.members(MeetingId(m));
      if (routes_[m] == MeetingRoute::here && !members.empty() && slice_.is_here(plan_[members[0]].device)) {
        stream_walk_.add_meeting(MeetingId(m));
      }
    }
  }

  void make_events() {
    for (const Task& task : plan_.tasks()) {
      changes_.push_back(exec::changes_state(plan_, task));
    }
    for (const LaneWalk& walk : lanes_) {
      slice_.place(walk.device).enter();
      for (const TaskId id : walk.tasks) {
        const MeetingId meeting = plan::meeting_of(plan_[id]);
        stream_walk_.add(id, meeting.valid() && routes_[meeting.index()] == MeetingRoute::here);
      }
    }
  }

  void open_host_memory() {
    std::int64_t bytes = 0;
    for (const std::vector<BufferId>* list : {&data_.losses, &data_.loaded, &data_.ahead}) {
      for (const BufferId id : *list) {
        if (slice_.is_here(plan_[id].device)) {
          host_offset_[id] = bytes;
          bytes += plan_[id].size().count;
        }
      }
    }
    slice_.first_place().enter();
    host_ = std::make_unique<Pinned>(bytes);
  }
  const double* rows(BufferId id) const { return reinterpret_cast<const double*>(host_->at(host_offset_.at(id))); }

  /// Runs a function together with all ranks, between steps.
  template <typename Together>
  void gather(Together together) {
    world_->progress()->arrive();
    together();
    world_->progress()->leave();
  }

  void load(std::int64_t step) {
    if (data_.loaded.empty()) {
      return;
    }
    fill(data_.loaded, steps_before_ + step);
    copy_filled(data_.loaded);
    gather([this] { world_->barrier(); });
  }

  /// Copies the rows of a step into pinned memory, and from there to the GPUs.
  void fill(const std::vector<BufferId>& buffers, std::int64_t step) const {
    for (const BufferId id : buffers) {
      if (slice_.is_here(plan_[id].device)) {
        data_.fill(plan_[id], host_->at(host_offset_.at(id)), step);
      }
    }
  }
  void copy_filled(const std::vector<BufferId>& buffers) const {
    for (const BufferId id : buffers) {
      if (slice_.is_here(plan_[id].device)) {
        copy(slice_.address(id), host_->at(host_offset_.at(id)), id, cudaMemcpyHostToDevice);
      }
    }
  }

  void read_losses() {
    for (const BufferId id : data_.losses) {
      if (slice_.is_here(plan_[id].device)) {
        copy(host_->at(host_offset_.at(id)), slice_.address(id), id, cudaMemcpyDeviceToHost);
      }
    }
  }

  /// While no step is under way.
  void copy(void* to, const void* from, BufferId id, cudaMemcpyKind kind) const {
    const GpuPlace& place = slice_.place(plan_[id].device);
    place.enter();
    cudaStream_t stream = place.stream(Lane::compute);
    require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(plan_[id].size().count), kind, stream), "copying");
    require(cudaStreamSynchronize(stream), "copying");
  }

  // ---- one step

  /// Ends the waits of this rank's devices for others; the work in their streams runs to its end.
  void leave_step() {
    for (StreamTransport* way : {staged_.get(), nccl_.get()}) {
      if (way != nullptr) {
        way->give_up();
      }
    }
    slice_.synchronize();
  }

  /// Returns false if it was given up before all its tasks were done.
  bool walk(bool traced) {
    traced_ = traced;
    changed_ = false;
    for (LaneWalk& one : lanes_) {
      one.enqueued = one.retired = 0;
      one.begun = one.started = false;
    }
    stream_walk_.begin_step();
    for (StreamTransport* way : {staged_.get(), nccl_.get()}) {
      if (way != nullptr) {
        way->begin_step();
      }
    }
    slice_.count_step();
    // The GPU is quick to answer, but ranks may share the host's cores.
    threads::Backoff rest(2000, 20000, Nanoseconds(20'000));
    for (std::size_t left = lanes_.size(); left > 0;) {
      bool moved = false;
      left = 0;
      for (std::size_t i = 0; i < lanes_.size(); ++i) {
        if (lanes_[i].retired < lanes_[i].tasks.size()) {
          moved = enqueue(i) || moved;
          moved = retire(i) || moved;
          left += lanes_[i].retired < lanes_[i].tasks.size() ? 1 : 0;
        }
      }
      if (moved) {
        rest.reset();
      } else {
        look(rest.calls());
        rest.wait();
      }
      if (left > 0 && asked_to_stop_at_once()) {
        return false;
      }
    }
    return true;
  }

  void look(int round) {
    for (ranks::DeviceProgress* progress : progresses_) {
      progress->look();
    }
    if (staged_) {
      staged_->look();
    }
    if (nccl_ && round % health_every == 0) {
      nccl_->look();
    }
  }

  /// True if the device's lanes have `counted` all that must be done before the task starts.
  bool follows(std::size_t lane, TaskId id, std::uint32_t LaneWalk::*counted) const {
    const plan::VectorClock& needed = ordering_.start[id.index()];
    for (std::size_t other = 0; other < plan::lane_count; ++other) {
      if (siblings_[lane][other]->*counted < needed[other]) {
        return false;
      }
    }
    return true;
  }

  /// Enqueues as many of the lane's tasks as possible; returns whether there were any.
  bool enqueue(std::size_t lane) {
    LaneWalk& walk = lanes_[lane];
    bool moved = false;
    while (walk.enqueued < walk.tasks.size()) {
      const TaskId id = walk.tasks[walk.enqueued];
      if (!walk.begun) {
        if (!follows(lane, id, &LaneWalk::enqueued)) {
          break;
        }
        begin(walk, id);
        moved = true;
        continue;
      }
      if (!exchanges_[id.index()]) {
        break;  // it waits for other devices of this rank
      }
      slice_.place(walk.device).enter();
      if (!exchanges_[id.index()]->progress()) {
        break;
      }
      slice_.place(walk.device).enter();
      finish(walk, id);
      moved = true;
    }
    return moved;
  }

  StreamWalk::Times times() const { return traced_ ? StreamWalk::Times::recorded : StreamWalk::Times::none; }

  void begin(LaneWalk& walk, TaskId id) {
    const Task& task = plan_[id];
    const MeetingId meeting = plan::meeting_of(task);
    changed_ = changed_ || changes_[id.index()];
    slice_.place(walk.device).enter();
    stream_walk_.begin(id, times());
    if (!meeting.valid()) {
      slice_.launch(id);
      finish(walk, id);
      return;
    }
    walk.begun = true;
    if (exchanges_[id.index()]) {
      exchanges_[id.index()]->begin();
      return;
    }
    stream_walk_.arrive(id, [this](TaskId member) { finish(lanes_[lane_of_[member.index()]], member); });
  }

  /// All work of the task is in the stream.
  void finish(LaneWalk& walk, TaskId id) {
    stream_walk_.finish(id, times());
    walk.begun = false;
    ++walk.enqueued;
  }

  /// Notes which of the lane's tasks are under way and which are done; returns whether that has changed.
  bool retire(std::size_t lane) {
    LaneWalk& walk = lanes_[lane];
    bool moved = false;
    while (walk.retired < walk.tasks.size()) {
      const TaskId id = walk.tasks[walk.retired];
      const bool all_in = walk.retired < walk.enqueued;
      if (!walk.started) {
        const bool is_begun = all_in || (walk.retired == walk.enqueued && walk.begun);
        if (!is_begun || !follows(lane, id, &LaneWalk::retired) ||
            (exchanges_[id.index()] && !exchanges_[id.index()]->has_come())) {
          break;
        }
        walk.progress->start(static_cast<std::size_t>(walk.lane));
        walk.started = moved = true;
      }
      if (!all_in || !stream_walk_[id].done->passed()) {
        break;
      }
      walk.progress->finish(static_cast<std::size_t>(walk.lane));
      walk.started = false;
      ++walk.retired;
      moved = true;
    }
    return moved;
  }

  // ---- traced steps

  /// A moment on a GPU's clock and on the host's.
  struct StartTime {
    std::unique_ptr<Event> event;
    Nanoseconds host;
  };

  void read_start_times() {
    for (const LaneWalk& walk : lanes_) {
      const GpuPlace& place = slice_.place(walk.device);
      StartTime& start = start_times_[place.ordinal()];
      place.enter();
      if (!start.event) {
        start.event = std::make_unique<Event>(Event::Purpose::timed);
        start.event->record(place.stream(Lane::compute));  // the first record may wait until it is set up
        start.event->synchronize();
      }
      for (const TaskId id : walk.tasks) {
        if (!stream_walk_[id].start) {
          stream_walk_.add_times(id);
        }
      }
    }
    for (auto& [ordinal, start] : start_times_) {
      const auto first = std::find_if(lanes_.begin(), lanes_.end(),
                                      [&](const LaneWalk& walk) { return slice_.place(walk.device).ordinal() == ordinal; });
      const GpuPlace& place = slice_.place(first->device);
      place.enter();
      start.event->record(place.stream(Lane::compute));
      start.event->synchronize();
      start.host = now();
    }
  }

  /// This rank's part of the step that was walked last, from `start` on.
  trace::StepTrace trace(Nanoseconds start, Nanoseconds duration) const {
    trace::StepTrace result{.duration = duration, .events = std::vector<trace::Event>(plan_.tasks().size())};
    for (const LaneWalk& walk : lanes_) {
      const StartTime& origin = start_times_.at(slice_.place(walk.device).ordinal());
      const auto time_of = [&](const Event& event) { return event.since(*origin.event) + origin.host - start; };
      for (const TaskId id : walk.tasks) {
        const TaskEvents& events = stream_walk_[id];
        const plan::TaskWork work = plan::work(plan_, id);
        const Nanoseconds begin = std::clamp(time_of(*events.start), Nanoseconds(0), duration);
        result.events[id.index()] = {begin, std::clamp(time_of(*events.end), begin, duration), work.sent, work.received};
      }
    }
    return result;
  }

  plan::Plan plan_;
  plan::Ordering ordering_;
  std::size_t progress_entry_ = 0;
  std::int64_t loaded_for_ = -1;  // the step whose rows are there
  exec::StepData data_;
  std::optional<cluster::Link> link_;
  std::shared_ptr<ranks::World> world_;
  std::vector<int> rank_of_device_;  // by device: the rank
  exec::StepReport report_;
  Slice slice_;
  std::vector<MeetingRoute> routes_;  // by meeting
  Meetings meetings_;                 // the meetings of this rank's devices only
  std::unique_ptr<StreamTransport> staged_;
  std::unique_ptr<StreamTransport> nccl_;
  std::vector<std::unique_ptr<StreamExchange>> exchanges_;  // by task; none if it meets nobody of another rank
  StreamWalk stream_walk_;
  std::vector<LaneWalk> lanes_;
  std::vector<std::array<const LaneWalk*, plan::lane_count>> siblings_;  // by lane: those of its device
  std::vector<std::size_t> lane_of_;                                     // by task
  std::map<std::pair<DeviceId, Lane>, std::size_t> lane_at_;
  std::vector<ranks::DeviceProgress*> progresses_;  // the progress of the devices here
  std::map<BufferId, std::int64_t> host_offset_;
  std::unique_ptr<Pinned> host_;
  std::map<int, StartTime> start_times_;  // by GPU
  std::vector<bool> changes_;             // by task: what is kept from step to step
  bool traced_ = false;                   // the step under way
  bool changed_ = false;                  // it has begun to change what is kept
  bool wants_no_more_ = false;
  std::int64_t steps_before_ = 0;
};

}  // namespace

std::unique_ptr<exec::Engine> make_rank_engine(exec::Assignment assignment, const Capability& capability) {
  return std::make_unique<RankEngine>(assignment, capability);
}

}  // namespace baton::cuda
