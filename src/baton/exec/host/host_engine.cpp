#include "baton/exec/host/host_engine.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/exec/contents.h"
#include "baton/exec/host/loading.h"
#include "baton/exec/rank_run.h"
#include "baton/exec/transport/transport.h"
#include "baton/op/traits.h"
#include "baton/threads/memory_arena.h"

namespace baton::exec {
namespace {

using plan::lane_count;
using plan::Plan;
using plan::Task;

/// The number of spins of an idle thread before it sleeps: long next to a hand-off, short next to a time slice. Devices that share
/// a core do not spin, since they would keep the other from working.
constexpr int patient_spins = 20000;
/// If messages move only while some thread polls, a poll takes the place of this many spins; devices that share a core poll a few
/// times, and leave the rest to the transport's own thread.
constexpr int spins_a_poll = 10;
constexpr int least_polls = 20;
/// Sleeping overshoots by about this much, so the end of a wait is spun.
constexpr Nanoseconds sleep_slack(80'000);
constexpr Nanoseconds longest_sleep(100'000'000);
/// A trace keeps at most this many events.
constexpr std::size_t most_events = 4'000'000;
/// The most events of one of several ranks that was asked to end: it has no time to hand over more.
constexpr std::size_t most_events_in_haste = 100'000;

/// A task as its device's thread sees it.
struct LaneTask {
  TaskId id;
  std::unique_ptr<Kernel> kernel;      // for a task that works alone
  std::unique_ptr<Exchange> exchange;  // for a task that meets others
  Nanoseconds delay;                   // for a delay
  plan::VectorClock after{};           // the number of tasks of each lane that must be done first
  Bytes sent{};                        // by the plan's count, as `received`
  Bytes received{};
  bool changes = false;  // state that is kept from step to step
};

/// The barrier of all devices between steps. The last to arrive does the work in between, while the others wait.
class StepBarrier {
 public:
  StepBarrier(int count, int spins) : count_(count), spins_(spins) {}

  /// Ends the wait when `stopping` is set.
  template <typename Between>
  void wait(const std::atomic<bool>& stopping, ranks::DeviceProgress& progress, Between between) {
    const std::uint32_t seen = bell_.rings();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      between();
      bell_.ring();
      return;
    }
    while (bell_.rings() == seen && !stopping.load(std::memory_order_relaxed)) {
      progress.look();
      bell_.wait(seen, spins_, longest_sleep);
    }
  }
  void ring() { bell_.ring(); }

 private:
  const int count_;
  const int spins_;
  alignas(64) std::atomic<int> arrived_{0};
  threads::Doorbell bell_;
};

class KernelWork final : public threads::TeamWork {
 public:
  void set(Kernel& kernel, std::int64_t step) {
    kernel_ = &kernel;
    step_ = step;
  }
  void run(const threads::Member& member) override { kernel_->run(member, step_); }

 private:
  Kernel* kernel_ = nullptr;
  std::int64_t step_ = 0;
};

/// Copies each buffer that a Take reads to the one that it writes, divided over the team.
class Copying final : public Kernel {
 public:
  Copying(const Plan& plan, const Task& task, const Addresses& addresses) : addresses_(addresses) {
    for (const BufferId id : task.reads) {
      sizes_.push_back(plan[id].size().count);
    }
  }
  void run(const threads::Member& member, std::int64_t /*step*/) override {
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const Range part = divide(sizes_[i], member.count, member.index, Remainder::first);
      std::copy_n(addresses_.reads[i] + part.begin, part.size(), addresses_.writes[i] + part.begin);
    }
  }

 private:
  Addresses addresses_;
  std::vector<std::int64_t> sizes_;
};

/// One device: its memory, its team, its lanes.
struct HostDevice {
  HostDevice(Bytes arena_size, std::vector<int> team_cores, int spins, ranks::DeviceProgress& place)
      : progress(place), arena(arena_size), cores(std::move(team_cores)), team(cores, spins) {}

  ranks::DeviceProgress& progress;
  threads::MemoryArena arena;
  std::vector<int> cores;
  threads::Team team;
  threads::Doorbell bell;
  std::array<std::vector<LaneTask>, lane_count> lanes;
  std::vector<BufferId> data;  // inputs and targets that change from step to step
};

/// The progress of a device's thread in a step, by lane.
struct StepWalk {
  std::int64_t number;  // the number of the step
  Nanoseconds origin;   // when it began
  std::array<std::uint32_t, lane_count> done{};
  std::array<bool, lane_count> started{};       // whether the next task is
  std::array<Nanoseconds, lane_count> until{};  // when a delay that has started ends, by lane
  KernelWork work{};
  bool moved = false;                 // whether a task started or ended in this round
  bool left = false;                  // it is given up in the middle
  std::optional<Nanoseconds> wake{};  // the earliest known time at which a started task can be over

  void wake_at(Nanoseconds time) { wake = wake ? std::min(*wake, time) : time; }
};

class HostEngine final : public Engine {
 public:
  HostEngine(Assignment assignment, const HostBackend& backend)
      : plan_(assignment.plan),
        data_(std::move(assignment.data)),
        spins_(assignment.cluster.oversubscribed() ? 0 : patient_spins),
        world_(assignment.world == nullptr ? ranks::make_world_of_one() : assignment.world),
        rank_of_device_(ranks_of(assignment.cluster)),
        report_(world_, plan_, rank_of_device_, data_.losses),
        memory_(std::move(assignment.memory)) {
    open_devices(assignment.cluster, backend);
    prepare(assignment, backend);
    for (const BufferId id : data_.loaded) {
      if (is_here(plan_[id].device.index())) {
        devices_[plan_[id].device.index()]->data.push_back(id);
      }
    }
    fill_all();
  }

  ~HostEngine() override {
    if (world_->under_way()) {  // after a failure: what other ranks may still write into stays
      for (const std::unique_ptr<HostDevice>& device : devices_) {
        device ? static_cast<void>(new threads::MemoryArena(std::move(device->arena))) : void();
      }
    }
  }

  RunResult run(const RunOptions& options, const Progress& progress) override {
    RunResult result = open_result(options.steps);
    const auto steps = static_cast<std::size_t>(options.steps);
    first_traced_ = std::min(steps, static_cast<std::size_t>(options.warmup));
    const std::size_t traced = std::min(steps - first_traced_,
                                        std::max<std::size_t>(1, most_events / std::max<std::size_t>(1, plan_.tasks().size())));
    result.trace.steps.resize(traced);
    for (trace::StepTrace& step : result.trace.steps) {
      step.events.resize(plan_.tasks().size());
    }
    scratch_events_.resize(plan_.tasks().size());
    starts_.assign(traced, Nanoseconds(0));
    result_ = &result;
    step_count_ = options.steps;
    keep_result_ = options.keep_result;
    unread_ = nullptr;
    if (!load_first()) {
      RunResult none = open_result(0);
      none.unread = unread_;
      return none;
    }
    step_ = -1;
    done_ = 0;
    finished_ = 0;
    stopping_ = false;
    stop_requested_ = false;
    given_up_ = false;
    changed_ = false;
    failure_ = nullptr;
    barrier_ = std::make_unique<StepBarrier>(local_device_count_, spins_);  // a failed run may leave the old barrier half-arrived
    const std::vector<ranks::ClockReading> clocks_before = ranks::read_clocks(*world_);

    std::vector<std::thread> threads;
    try {
      for (const std::unique_ptr<HostDevice>& device : devices_) {
        if (device) {
          threads.emplace_back([this, &device] { serve(*device); });
        }
      }
      world_->progress()->show(progress_entry_);
      world_->progress()->set(ranks::Activity::training);
      watch(progress);
    } catch (...) {  // no thread to be had, or the caller's own progress failed
      fail(std::current_exception());
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    world_->progress()->set(ranks::Activity::between);
    for (const auto& [task, loading] : loadings_) {
      loading->settle();
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    tally(result.roundings);
    const std::int64_t done = done_.load();
    steps_before_ += done;
    agree_on_unread();
    loaded_for_ = given_up_ || unread_ ? nowhere : steps_before_;
    result.unread = done < step_count_ ? unread_ : nullptr;  // the rows after the last step are for a run that may not come
    std::size_t left = static_cast<std::size_t>(done) - std::min(static_cast<std::size_t>(done), first_traced_);
    if (!world_->alone() && done < step_count_) {
      left = std::min(left, std::max<std::size_t>(1, most_events_in_haste / std::max<std::size_t>(1, plan_.tasks().size())));
    }
    result.trace.steps.resize(std::min(result.trace.steps.size(), left));
    gather_result(*world_, plan_, rank_of_device_, clocks_before, starts_, result);
    return result;
  }

  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const override {
    const std::size_t device = plan_[id].device.index();
    if (is_here(device)) {
      std::copy_n(address(id) + begin, into.size(), into.data());
    }
    share_bytes(*world_, rank_of_device_[device], into);
  }

  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) override {
    if (is_here(plan_[id].device.index())) {
      std::copy(bytes.begin(), bytes.end(), address(id) + begin);
    }
  }

  void continue_from(std::int64_t steps) override { steps_before_ = steps; }

 private:
  /// True if this rank runs the device.
  bool is_here(std::size_t device) const { return rank_of_device_[device] == world_->rank(); }

  std::byte* address(BufferId id) const { return devices_[plan_[id].device.index()]->arena.at(memory_.offset[id.index()]); }

  void open_devices(const cluster::Cluster& cluster, const HostBackend& backend) {
    progress_entry_ = world_->progress()->open(
        static_cast<std::size_t>(std::count(rank_of_device_.begin(), rank_of_device_.end(), world_->rank())));
    for (std::size_t d = 0; d < cluster.size(); ++d) {
      const cluster::Device& device = cluster.devices()[d];
      if (!is_here(d)) {
        devices_.push_back(nullptr);
        continue;
      }
      ranks::DeviceProgress& progress = world_->progress()->device(static_cast<std::size_t>(local_device_count_++));
      const int team = backend.team_size(static_cast<int>(device.cores.size()));
      devices_.push_back(std::make_unique<HostDevice>(
          memory_.peak[d], std::vector<int>(device.cores.begin(), device.cores.begin() + team), spins_, progress));
    }
  }

  Addresses addresses(TaskId id) const {
    std::byte* const workspace = devices_[plan_[id].device.index()]->arena.at(memory_.workspace[id.index()]);
    return addresses_of(plan_[id], workspace, [this](BufferId buffer) { return address(buffer); });
  }

  /// True if this process may use a core on which no device computes.
  bool has_spare_core(const cluster::Cluster& cluster) const {
    const auto here = std::find(rank_of_device_.begin(), rank_of_device_.end(), world_->rank());
    cpu_set_t cores;
    if (here == rank_of_device_.end() || sched_getaffinity(0, sizeof cores, &cores) != 0) {
      return true;
    }
    const int machine = cluster.devices()[static_cast<std::size_t>(here - rank_of_device_.begin())].machine;
    for (const cluster::Device& device : cluster.devices()) {
      for (const int core : device.cores) {
        if (device.machine == machine && core < CPU_SETSIZE) {
          CPU_CLR(static_cast<std::size_t>(core), &cores);
        }
      }
    }
    return CPU_COUNT(&cores) > 0;
  }

  void prepare(const Assignment& assignment, const HostBackend& backend) {
    TransportContext context{plan_, std::vector<Addresses>(plan_.tasks().size()), {},
                             {},    assignment.cluster.emulated_link(),           !has_spare_core(assignment.cluster)};
    for (const std::unique_ptr<HostDevice>& device : devices_) {
      context.doorbells.push_back(device ? &device->bell : nullptr);
      context.teams.push_back(device ? &device->team : nullptr);
    }
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const Task& task = plan_.tasks()[t];
      if (plan::meeting_of(task).valid() && is_here(task.device.index())) {
        context.addresses[t] = addresses(TaskId(t));
      }
    }
    transport_ = world_->alone() ? make_memory_transport(std::move(context))
                                 : make_rank_transport(std::move(context), world_, rank_of_device_);

    for (std::size_t d = 0; d < devices_.size(); ++d) {
      for (std::size_t lane = 0; lane < lane_count && is_here(d); ++lane) {
        for (const TaskId id : plan_.lane(DeviceId(d), static_cast<plan::Lane>(lane))) {
          devices_[d]->lanes[lane].push_back(prepare(id, backend));
        }
      }
    }
  }

  LaneTask prepare(TaskId id, const HostBackend& backend) {
    const Task& task = plan_[id];
    LaneTask made{.id = id, .kernel = nullptr, .exchange = nullptr, .delay = {}};
    if (const auto* delay = std::get_if<plan::Delay>(&task.action)) {
      made.delay = delay->duration;
    } else if (std::holds_alternative<plan::Load>(task.action)) {
      auto loading = std::make_unique<Loading>([this, &task] { load_next(task.writes, step_ + 1); },
                                               devices_[task.device.index()]->bell);
      loadings_.emplace_back(id, loading.get());
      made.exchange = std::move(loading);
    } else if (std::holds_alternative<plan::Take>(task.action)) {
      made.kernel = std::make_unique<Copying>(plan_, task, addresses(id));
    } else if (plan::meeting_of(task).valid()) {
      made.exchange = transport_->prepare(id);
      const plan::TaskWork work = plan::work(plan_, id);
      made.sent = work.sent;
      made.received = work.received;
    } else {
      made.kernel = backend.prepare(plan_, id, addresses(id), devices_[task.device.index()]->team.size());
    }
    made.changes = changes_state(plan_, task);
    for (const TaskId other : task.after) {
      std::uint32_t& least = made.after[static_cast<std::size_t>(plan_[other].lane)];
      least = std::max(least, plan_.position(other) + 1);
    }
    return made;
  }

  /// Adds the rounding of all tasks since the last call.
  void tally(std::vector<RoundingTally>& tallies) {
    counted_.resize(plan_.tasks().size());
    for (const std::unique_ptr<HostDevice>& device : devices_) {
      if (!device) {
        continue;
      }
      for (const std::vector<LaneTask>& lane : device->lanes) {
        for (const LaneTask& made : lane) {
          const Rounding total = made.kernel ? made.kernel->rounding() : made.exchange ? made.exchange->rounding() : Rounding{};
          Rounding since = total;
          since -= std::exchange(counted_[made.id.index()], total);
          if (since == Rounding{}) {
            continue;
          }
          const Task& task = plan_[made.id];
          const auto* compute = std::get_if<plan::Compute>(&task.action);
          const bool steps = compute != nullptr && op::takes_step(compute->op);  // with a gradient that is not stored
          const plan::Role role = steps ? plan::Role::gradient
                                        : plan_[made.exchange ? plan::payload(task)[0] : task.writes.back()].role;
          add_tally(tallies, {task.labels.phase, task.labels.block, role, since});
        }
      }
    }
  }

  /// Each device fills its own memory, so that pages lie near its cores.
  void fill_all() {
    std::vector<std::exception_ptr> failures(devices_.size());
    std::vector<std::thread> threads;
    const auto fill = [&](std::size_t d) {
      threads::pin_to_core(devices_[d]->cores[0]);
      try {
        for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
          const plan::Buffer& buffer = plan_.buffers()[b];
          if (buffer.device == DeviceId(d) && buffer.persistent) {
            data_.fill(buffer, address(BufferId(b)), 0);
          }
        }
      } catch (...) {
        failures[d] = std::current_exception();
      }
    };
    std::exception_ptr failure;
    try {
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        if (is_here(d)) {
          threads.emplace_back(fill, d);
        }
      }
    } catch (...) {  // no further thread to be had
      failure = std::current_exception();
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const std::exception_ptr& one : failures) {
      failure = failure ? failure : one;
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

  /// The calling thread sleeps while devices work, and looks up now and then.
  void watch(const Progress& progress) {
    RunResult shown;  // a copy, since the devices go on meanwhile
    while (true) {
      const std::uint32_t seen = watched_.rings();
      const std::int64_t done = done_.load(std::memory_order_acquire);
      if (progress && done > 0) {
        {
          const std::lock_guard lock(result_mutex_);
          catch_up(shown, *result_);
        }
        if (!progress(done, shown)) {
          stop_requested_ = true;
        }
      }
      if (done == step_count_ || finished_.load(std::memory_order_acquire) == local_device_count_) {
        break;
      }
      if (asked_to_stop_at_once()) {
        give_up();
      }
      watched_.wait(seen, 0, progress ? Nanoseconds(50'000'000) : longest_sleep);
    }
  }

  void serve(HostDevice& device) {
    threads::pin_to_core(device.cores[0]);
    try {
      while (true) {
        barrier_->wait(stopping_, device.progress, [this] { between_steps(); });
        if (stopping_) {
          break;
        }
        if (!data_.loaded.empty()) {  // true if any device loads: those without data wait for the others too
          load(device);
          barrier_->wait(stopping_, device.progress, [this] {
            world_->progress()->arrive();
            world_->barrier();
            world_->progress()->leave();
            begin_step();
          });
        }
        run_step(device);
        if (stopping_) {  // in the middle of a step: what all ranks share after it would wait for the others
          break;
        }
      }
    } catch (...) {
      fail(std::current_exception());
    }
    finished_.fetch_add(1, std::memory_order_acq_rel);
    watched_.ring();
  }

  /// Every device leaves the step under way and comes to its end, where all ranks agree on what is left of it.
  void give_up() {
    given_up_ = true;
    ring_devices();
  }

  void fail(std::exception_ptr why) {
    {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) {
        failure_ = std::move(why);
      }
    }
    stopping_ = true;
    barrier_->ring();
    ring_devices();
  }

  void ring_devices() {
    for (const std::unique_ptr<HostDevice>& device : devices_) {
      if (device) {
        device->bell.ring();
      }
    }
  }

  /// Ends the step that all devices have finished and begins the next. One thread runs it, the others wait.
  void between_steps() {
    bool stops = false;
    world_->progress()->arrive();
    if (step_ >= 0) {
      stops = end_step();
    } else {
      world_->barrier();
    }
    world_->progress()->leave();
    ++step_;
    if (step_ == step_count_ || stops) {
      stopping_ = true;
      return;
    }
    begin_step();
  }

  void begin_step() {
    changed_.store(false, std::memory_order_relaxed);
    trace::StepTrace* traced = traced_step();
    events_ = traced != nullptr ? traced->events.data() : scratch_events_.data();
    transport_->begin_step();
    step_start_ = now();
    if (traced != nullptr) {
      starts_[static_cast<std::size_t>(step_) - first_traced_] = step_start_;
    }
  }

  /// Returns the trace of the step under way; nullptr if it is not kept: during the warm-up, and after as many steps as are kept.
  trace::StepTrace* traced_step() {
    const auto step = static_cast<std::size_t>(step_);
    const bool traced = step >= first_traced_ && step - first_traced_ < result_->trace.steps.size();
    return traced ? &result_->trace.steps[step - first_traced_] : nullptr;
  }

  /// The time for which only the rows of the next step held up the step under way.
  Nanoseconds wait_for_data() const {
    Nanoseconds loaded;
    Nanoseconds others;
    for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
      const Task& task = plan_.tasks()[t];
      if (is_here(task.device.index())) {
        Nanoseconds& latest = std::holds_alternative<plan::Load>(task.action) ? loaded : others;
        latest = std::max(latest, events_[t].end);
      }
    }
    return std::max(Nanoseconds(0), loaded - others);
  }

  /// Returns true if it was the last that is wanted.
  bool end_step() {
    const Nanoseconds duration = now() - step_start_;
    if (trace::StepTrace* traced = traced_step()) {
      traced->duration = duration;
    }
    const StepReport::Summary summary = report_.share(
        {.duration = duration, .stop_requested = stop_requested_, .given_up = given_up_, .changed = changed_},
        [this](BufferId id) { return reinterpret_cast<const double*>(address(id)); });
    if (summary.given_up) {
      given_up_ = true;  // maybe on another rank
      if (!keep_result_ || summary.changed || step_ == 0) {
        fail(std::make_exception_ptr(Stopped()));
      }
      return true;
    }
    {
      const Nanoseconds data_wait = data_.feed != nullptr ? wait_for_data() : Nanoseconds(0);
      const std::lock_guard lock(result_mutex_);
      add_step(*result_, summary.loss, summary.duration, data_wait);
    }
    done_.store(step_ + 1, std::memory_order_release);
    if (step_ + 1 == step_count_) {
      watched_.ring();
    }
    return summary.stop_requested || (keep_result_ && !std::isfinite(summary.loss));
  }

  /// Fills buffers with the rows of a step.
  void load(std::span<const BufferId> buffers, std::int64_t step) const {
    for (const BufferId id : buffers) {
      data_.fill(plan_[id], address(id), step);
    }
  }

  /// Loads the rows of a step of this run. If the state is wanted, rows that cannot be read end the run before that step.
  void load_next(std::span<const BufferId> buffers, std::int64_t step) {
    try {
      load(buffers, steps_before_ + step);
    } catch (const Error&) {
      if (!keep_result_) {
        throw;
      }
      const std::lock_guard lock(failure_mutex_);
      unread_ = unread_ ? unread_ : std::current_exception();
      stop_requested_ = true;
    }
  }

  /// Loads ahead for the first step of the run, unless its rows are there. Returns false if some rank could not read them: then no
  /// step runs.
  bool load_first() {
    if (std::exchange(loaded_for_, nowhere) != steps_before_) {
      for (const auto& [task, loading] : loadings_) {
        load_next(plan_[task].writes, 0);
      }
    }
    agree_on_unread();
    return !unread_;
  }

  /// After it, all ranks know if one of them could not read rows.
  void agree_on_unread() {
    if (keep_result_ && !data_.ahead.empty()) {
      unread_ = ranks::first_error(*world_, unread_);
    }
  }

  void load(HostDevice& device) {
    for (const BufferId id : device.data) {
      data_.fill(plan_[id], address(id), steps_before_ + step_);
    }
  }

  /// Serves the lanes of one device until all their tasks are done.
  void run_step(HostDevice& device) {
    StepWalk walk{.number = steps_before_ + step_ + 1, .origin = step_start_};
    bool idle = false;
    while (true) {
      const std::uint32_t seen = device.bell.rings();
      walk.moved = false;
      walk.wake.reset();
      const bool all_done = serve_lanes(device, walk, idle);
      if (all_done && asked_to_stop_at_once()) {
        give_up();
      }
      if (all_done || walk.left || stopping_.load(std::memory_order_relaxed) || given_up_.load(std::memory_order_relaxed)) {
        return;
      }
      if (walk.moved) {
        idle = false;
      } else if (!idle) {
        idle = true;  // once more, taking work off others, before waiting
      } else {
        device.progress.look();
        rest(device, seen, walk.wake);
      }
    }
  }

  /// Serves each lane once, up to the first computation; true if all their tasks were done before.
  bool serve_lanes(HostDevice& device, StepWalk& walk, bool idle) {
    bool all_done = true;
    for (const plan::Lane name : plan::serving_order) {
      const auto lane = static_cast<std::size_t>(name);
      if (walk.done[lane] == device.lanes[lane].size()) {
        continue;
      }
      all_done = false;
      LaneTask& task = device.lanes[lane][walk.done[lane]];
      if (!walk.started[lane]) {
        if (walk.done[0] < task.after[0] || walk.done[1] < task.after[1] || walk.done[2] < task.after[2]) {
          continue;
        }
        if (asked_to_stop_at_once()) {  // kernels may have left things undone
          give_up();
          walk.left = true;
          return false;
        }
        start(device, walk, lane, task);
        if (task.kernel) {
          break;  // look at the messages again before the next computation
        }
      }
      if (is_over(walk, lane, task, idle)) {
        walk.started[lane] = false;
        finish(device, walk, lane, task);
      }
    }
    return all_done;
  }

  /// Starts the next task of a lane; a kernel also runs and ends here.
  void start(HostDevice& device, StepWalk& walk, std::size_t lane, LaneTask& task) {
    events_[task.id.index()].start = now() - walk.origin;
    device.progress.start(lane);
    walk.moved = true;
    if (task.changes) {
      changed_.store(true, std::memory_order_relaxed);
    }
    if (task.kernel) {
      walk.work.set(*task.kernel, walk.number);
      device.team.run(walk.work);
      finish(device, walk, lane, task);
      return;
    }
    walk.started[lane] = true;
    if (task.exchange) {
      task.exchange->post();
    } else {
      walk.until[lane] = now() + task.delay;
    }
  }

  /// Makes progress on a task that was started; if it is not over and the time of its end is known, the device need not wake
  /// before.
  bool is_over(StepWalk& walk, std::size_t lane, LaneTask& task, bool idle) {
    if (task.exchange) {
      if (task.exchange->progress(idle)) {
        trace::Event& event = events_[task.id.index()];
        event.sent = task.sent;
        event.received = task.received;
        return true;
      }
      if (const std::optional<Nanoseconds> due = task.exchange->due()) {
        walk.wake_at(*due);
      }
      return false;
    }
    if (now() >= walk.until[lane]) {
      return true;
    }
    walk.wake_at(walk.until[lane]);
    return false;
  }

  void finish(HostDevice& device, StepWalk& walk, std::size_t lane, const LaneTask& task) {
    events_[task.id.index()].end = now() - walk.origin;
    ++walk.done[lane];
    device.progress.finish(lane);
    walk.moved = true;
  }

  void rest(HostDevice& device, std::uint32_t seen, std::optional<Nanoseconds> wake) const {
    if (!wake) {
      for (int i = 0; transport_->polled() && i < std::max(spins_ / spins_a_poll, least_polls); ++i) {
        if (device.bell.rings() != seen) {
          return;
        }
        transport_->poll();
        spins_ == 0 ? std::this_thread::yield() : threads::relax();
      }
      transport_->sleeps();
      device.bell.wait(seen, transport_->polled() ? 0 : spins_, longest_sleep);
      transport_->wakes();
      return;
    }
    const Nanoseconds left = *wake - now();
    if (left > sleep_slack) {
      device.bell.wait(seen, 0, std::min(left - sleep_slack, longest_sleep));
    } else if (spins_ == 0) {
      std::this_thread::yield();
    } else {
      threads::relax();
    }
  }

  Plan plan_;
  StepData data_;
  int spins_;
  std::shared_ptr<ranks::World> world_;
  std::vector<int> rank_of_device_;  // by device: the rank
  StepReport report_;
  plan::Memory memory_;
  std::vector<std::unique_ptr<HostDevice>> devices_;  // none if another rank runs it
  int local_device_count_ = 0;                        // the number of devices of this rank
  std::size_t progress_entry_ = 0;                    // the number of their entries
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<StepBarrier> barrier_;
  std::int64_t steps_before_ = 0;
  static constexpr std::int64_t nowhere = -1;
  std::int64_t loaded_for_ = 0;                        // the step whose rows are there
  std::vector<std::pair<TaskId, Loading*>> loadings_;  // the loading tasks of the devices here
  std::vector<Rounding> counted_;                      // by task, up to the end of the last run

  // The state of the run under way. The last thread at the barrier writes it, the others read it afterwards.
  RunResult* result_ = nullptr;
  std::mutex result_mutex_;  // held while a step is appended to it, and while it is copied
  std::int64_t step_count_ = 0;
  bool keep_result_ = false;
  std::size_t first_traced_ = 0;
  std::int64_t step_ = -1;
  Nanoseconds step_start_;
  trace::Event* events_ = nullptr;
  std::vector<trace::Event> scratch_events_;
  std::vector<Nanoseconds> starts_;  // when the traced steps started
  std::atomic<std::int64_t> done_{0};
  std::atomic<int> finished_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> given_up_{false};  // the step under way is left in the middle
  std::atomic<bool> changed_{false};   // it has begun to change what is kept
  threads::Doorbell watched_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::exception_ptr unread_;  // the error of a feed for the rows of the next step
};

}  // namespace

std::unique_ptr<Engine> make_host_engine(Assignment assignment, const HostBackend& backend) {
  return std::make_unique<HostEngine>(std::move(assignment), backend);
}

std::unique_ptr<Engine> HostBackend::open(Assignment assignment) const { return make_host_engine(std::move(assignment), *this); }

}  // namespace baton::exec
