#include "baton/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "baton/base/error.h"
#include "baton/base/ids.h"
#include "baton/base/stop.h"
#include "baton/cost/link_time.h"
#include "baton/sim/expand.h"
#include "baton/sim/links.h"
#include "baton/sim/traffic.h"

namespace baton::sim {
namespace {

using plan::Lane;
using plan::lane_count;
using trace::Event;
using EngineId = Id<struct EngineTag>;
using CellId = Id<struct CellTag>;
/// A lane of a device: device · lanes + lane.
using SlotId = Id<struct SlotTag>;

SlotId slot_of(DeviceId device, std::size_t lane) { return SlotId(device.index() * lane_count + lane); }

/// The least pace of computing, whatever share of a core messages take.
constexpr double least_pace = 0.01;

enum class TaskType : std::uint8_t { work, delay, member };

/// A task as the walk sees it.
struct Node {
  Nanoseconds duration;     // time of the task; for a member of a meeting, of its part of the copying
  std::uint32_t waits = 0;  // the number of tasks that it waits for
  SlotId slot;
  MeetingId meeting;
  EngineId engine;  // the engine that serves it; none if lanes are separate
  TaskType kind = TaskType::work;
  Nanoseconds issued;  // when its host issues it, counted from the beginning of its cell
  CellId cell;         // its cell of the schedule, if hosts wait for messages
};

/// The tasks that a device computes for one micro-batch of one stage, in a row. If hosts wait for messages, it begins when the
/// messages before it have been sent and received.
struct Cell {
  plan::Labels labels;
  TaskId first;
  TaskId last;
  bool waits = false;   // true if it waits for messages
  CellId before;        // the cell of the device before it
  Nanoseconds issuing;  // time to issue all its tasks
  Nanoseconds begun;    // when its host issues the first task, in the current step
};

/// The kind of an event. Events of one time are handled in the order of their kinds and then of numbers.
enum class ClockEventKind : std::uint8_t {
  task_ends,
  copying_ends,
  part_ends,
  flow_ends,
  flow_begins,
  meeting_begins,
  min_duration_ends
};
struct ClockEvent {
  Nanoseconds time;
  ClockEventKind kind = ClockEventKind::task_ends;
  std::uint32_t number = 0;   // number of the task, the meeting or the engine
  std::uint32_t version = 0;  // the latest counts

  auto operator<=>(const ClockEvent&) const = default;
};

struct Meeting {
  // The same for every step.
  std::span<const TaskId> members;
  std::span<const Leg> legs;
  Nanoseconds copying;       // copying time of all members together
  Nanoseconds min_duration;  // 0, unless lanes copy by themselves or a link is emulated
  double core_share = 0;     // the share of a core that its messages take while they are under way

  // The state in the current step.
  std::uint32_t arrived = 0;
  std::uint32_t leg = 0;
  std::uint32_t parts = 0;  // parts still under way: copying, links, the minimum duration
  std::uint32_t wires = 0;  // the number of those that are not copying
  bool begun = false;
  bool over = false;
  Nanoseconds met;
  Nanoseconds left;  // copying that is left at `since`
  Nanoseconds since;
  std::uint32_t workers = 0;  // engines that copy for it
  std::uint32_t version = 0;  // version of its end
};

struct MeetingKind {
  plan::Move move;
  Reach reach;
  std::int64_t bytes;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> members;  // ranks and devices
  bool operator<(const MeetingKind& other) const {
    return std::tie(move, reach, bytes, members) < std::tie(other.move, other.reach, other.bytes, other.members);
  }
};

/// The loads of meetings of one kind on the links.
struct Expanded {
  bool known = false;
  std::vector<Leg> legs;
  double core_share = 0;
};

/// The task of a lane whose turn it is and that waits only for its engine or, once it has arrived, for its meeting.
struct Front {
  TaskId task;
  bool arrived = false;
  bool part_taken = false;
};

/// The cores that serve the lanes of a device, or of several on the same cores: one thing at a time.
struct Engine {
  std::vector<DeviceId> devices;
  double cores = 1;

  // The task that it computes, and the work that is left of it at `since`. Messages under way take a share of the engine, which
  // slows the task by that share.
  TaskId task;
  double left = 0;
  Nanoseconds since;
  std::uint32_t pace_version = 0;  // version of the task's end
  std::vector<double> messages{};  // the share of a core that the messages of each meeting under way take

  bool busy = false;
  bool queued = false;        // in the queue of engines to look at
  MeetingId meeting;          // the meeting for which it copies
  std::uint32_t version = 0;  // version of the end of its part of that copying
  std::size_t turn = 0;       // the device it looks at first
};

}  // namespace

class Simulator::Walk {
 public:
  Walk(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost, const StandsFor& stands_for)
      : plan_(plan), links_(cluster), traffic_(links_, plan.meeting_count()) {
    const std::size_t devices = stands_for.empty() ? cluster.size() : stands_for.devices.size();
    check(plan.devices().size() == devices, "a plan for {} devices on a cluster of {}", plan.devices().size(), devices);
    messages_apart_.resize(devices);
    const std::vector<EngineId> engine_of_device = open_engines(cluster, stands_for);
    nodes_.resize(plan.tasks().size());
    crossing_.resize(nodes_.size());
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      prepare(TaskId(t), cost, engine_of_device, cluster.wiring().has_value());
    }
    if (cost.waits_for_messages()) {
      find_cells();
      if (cost.waits_for_batches()) {
        wait_for_batches();
      }
    }
    // Lanes that share a device's engine have one task at a time.
    streams_apart_ = engines_.empty() && cost.streams_apart();
    issue(cost);
    connect(stands_for);
    meetings_.resize(plan.meeting_count());
    for (std::size_t m = 0; m < meetings_.size(); ++m) {
      prepare(MeetingId(m), cluster, stands_for);
    }
    waits_.resize(nodes_.size());
    fronts_.resize(devices * lane_count);
    stream_edges_ = {};
  }

  void run(trace::StepTrace& step) {
    step.events = crossing_;  // no allocation where there is room
    events_ = step.events.data();
    reset();
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      if (waits_[t] == 0) {
        become_ready(TaskId(t));
      }
    }
    start_ready();
    while (true) {
      if (!queue_.empty() && queue_.front().time == now_) {
        happen(pop());
      } else if (!to_look_at_.empty()) {
        // Only after all ends at this time, so each engine sees all work that became ready.
        look(take_engine());
      } else if (!queue_.empty()) {
        now_ = queue_.front().time;
      } else {
        break;
      }
      start_ready();
      throw_if_stop_requested();
    }
    if (ended_ != nodes_.size() && !cells_.empty()) {
      throw usage_error(
          "stages of this schedule would wait for one another for ever in a program that blocks while it sends and receives "
          "('waits' of its profile): choose --schedule 1f1b or gpipe, or another --software");
    }
    check(ended_ == nodes_.size(), "{} of {} tasks wait for one another for ever", nodes_.size() - ended_, nodes_.size());
    step.duration = Nanoseconds(0);
    for (const Event& event : step.events) {
      step.duration = std::max(step.duration, event.end);
    }
  }

 private:
  // ------------------------------------------------------------------------------------------------ before a step

  /// Devices on the same cores share an engine. Devices whose tasks never take turns have none.
  std::vector<EngineId> open_engines(const cluster::Cluster& cluster, const StandsFor& stands_for) {
    std::map<int, EngineId> of_core;
    std::vector<EngineId> of_device(plan_.devices().size());
    for (std::size_t d = 0; d < of_device.size(); ++d) {
      const cluster::Device& device = cluster.device(stands_for.empty() ? DeviceId(d) : stands_for.devices[d][0]);
      if (!device.shares_with_collectives()) {
        continue;
      }
      messages_apart_[d] = !device.shared_lanes;
      EngineId engine(engines_.size());
      for (const int core : device.cores) {
        const auto known = of_core.find(core);
        engine = known == of_core.end() ? engine : std::min(engine, known->second);
      }
      for (const int core : device.cores) {
        of_core.emplace(core, engine);
      }
      if (engine.index() == engines_.size()) {
        engines_.emplace_back();
      }
      engines_[engine.index()].devices.push_back(DeviceId(d));
      engines_[engine.index()].cores = static_cast<double>(std::max<std::size_t>(1, device.cores.size()));
      of_device[d] = engine;
    }
    return of_device;
  }

  void prepare(TaskId id, const cost::CostModel& cost, const std::vector<EngineId>& engine_of_device, bool wired) {
    const plan::Task& task = plan_[id];
    Node& node = nodes_[id.index()];
    const bool carried = !wired || engine_of_device[task.device.index()].valid();
    node.slot = slot_of(task.device, static_cast<std::size_t>(task.lane));
    const bool takes_turns = task.lane == Lane::compute || std::holds_alternative<plan::Collective>(task.action);
    const bool apart = messages_apart_[task.device.index()] && !takes_turns;
    node.engine = apart ? EngineId() : engine_of_device[task.device.index()];
    if (const auto* delay = std::get_if<plan::Delay>(&task.action)) {
      node.kind = TaskType::delay;
      node.duration = delay->duration;
    } else if (const MeetingId meeting = plan::meeting_of(task); meeting.valid()) {
      node.kind = TaskType::member;
      node.meeting = meeting;
      node.duration = carried ? cost.copying(plan_, id) : Nanoseconds(0);
      const plan::TaskWork work = plan::work(plan_, id);
      crossing_[id.index()].sent = work.sent;
      crossing_[id.index()].received = work.received;
    } else {
      node.duration = cost.duration(plan_, id);
    }
    check(node.duration.count >= 0, "task {} takes {} ns", id.value, node.duration.count);
  }

  /// Sets the times at which hosts issue tasks: in the plan's order, each after the one before.
  void issue(const cost::CostModel& cost) {
    std::vector<Nanoseconds> spent(plan_.devices().size());
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      const std::size_t device = plan_.tasks()[t].device.index();
      if (nodes_[t].engine.valid()) {
        continue;  // its cores are the host; of parts of a GPU, tasks were timed together with what issuing them takes
      }
      const Nanoseconds time = cost.issuing(plan_, TaskId(t));
      if (const CellId cell = nodes_[t].cell; cell.valid()) {
        cells_[cell.index()].issuing += time;
        nodes_[t].issued = cells_[cell.index()].issuing;
      } else {
        spent[device] += time;
        nodes_[t].issued = spent[device];
      }
    }
  }

  using CellKey = std::tuple<DeviceId, plan::Phase, std::int32_t, std::int32_t>;
  static CellKey key(DeviceId device, const plan::Labels& labels) {
    return {device, labels.phase, labels.micro_batch, labels.stage};
  }
  static bool same_cell(const plan::Labels& a, const plan::Labels& b) {
    return a.phase == b.phase && a.micro_batch == b.micro_batch && a.stage == b.stage;
  }

  /// Finds the cells of each device, by the tasks of its compute lane.
  void find_cells() {
    for (std::size_t d = 0; d < plan_.devices().size(); ++d) {
      CellId cell;
      for (const TaskId id : plan_.lane(DeviceId(d), Lane::compute)) {
        const plan::Labels& labels = plan_[id].labels;
        if (!cell.valid() || !same_cell(cells_[cell.index()].labels, labels)) {
          cells_.push_back({.labels = labels, .first = id, .last = id, .waits = false, .before = cell, .issuing = {}, .begun = {}});
          cell = CellId(cells_.size() - 1);
        }
        cells_[cell.index()].last = id;
        nodes_[id.index()].cell = cell;
      }
    }
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      cell_of_[key(plan_[cells_[c].first].device, cells_[c].labels)] = CellId(c);
    }
    for (std::size_t t = 0; t < nodes_.size(); ++t) {  // collectives are issued with what they belong to
      if (const plan::Task& task = plan_.tasks()[t]; std::holds_alternative<plan::Collective>(task.action)) {
        const auto found = cell_of_.find(key(task.device, task.labels));
        nodes_[t].cell = found == cell_of_.end() ? CellId() : found->second;
      }
    }
  }

  /// Lets hosts wait for their devices before forwards of the first and the last stage.
  void wait_for_batches() {
    std::int32_t last = 0;
    for (const Cell& cell : cells_) {
      last = std::max(last, cell.labels.stage);
    }
    for (Cell& cell : cells_) {
      cell.waits = cell.waits ||
                   (cell.labels.phase == plan::Phase::forward && (cell.labels.stage <= 0 || cell.labels.stage == last));
    }
  }

  /// If hosts wait for messages: a cell that reads a message comes after the receive, and a send is over before the next cell
  /// begins. Without streams a receive is also posted only after the cell before the one that reads it. Lanes keep no order among
  /// messages.
  template <typename Visit>
  void each_edge_of_messages(Visit visit) {
    std::vector<CellId> reader(nodes_.size());  // by receive: the first cell that comes after it
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      for (const TaskId before : plan_.tasks()[t].after) {
        if (nodes_[t].cell.valid() && !reader[before.index()].valid()) {
          reader[before.index()] = nodes_[t].cell;
        }
      }
    }
    std::vector<CellId> next(cells_.size());
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (cells_[c].before.valid()) {
        next[cells_[c].before.index()] = CellId(c);
      }
    }
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      const auto* transfer = std::get_if<plan::Transfer>(&plan_.tasks()[t].action);
      if (transfer == nullptr) {
        continue;
      }
      const plan::Task& task = plan_.tasks()[t];
      if (transfer->end == plan::Transfer::End::receive) {
        if (reader[t].valid()) {
          Cell& cell = cells_[reader[t].index()];
          cell.waits = true;
          visit(TaskId(t), cell.first);
          if (cell.before.valid() && !streams_apart_) {
            visit(cells_[cell.before.index()].last, TaskId(t));
          }
        }
      } else if (const auto written = cell_of_.find(key(task.device, task.labels));
                 written != cell_of_.end() && next[written->second.index()].valid()) {
        Cell& cell = cells_[next[written->second.index()].index()];
        cell.waits = true;
        visit(TaskId(t), cell.first);
      }
    }
  }

  bool is_transfer(TaskId id) const { return std::holds_alternative<plan::Transfer>(plan_[id].action); }

  /// The stream on which a task communicates: messages with one device in one direction; collectives of one group of devices, those
  /// of parameters and their gradients apart from those of other values, because programs issue them during or after the backward.
  using StreamKey = std::tuple<DeviceId, int, Reach, std::vector<DeviceId>>;
  StreamKey stream_of(TaskId id, const StandsFor& stands_for) const {
    const plan::Task& task = plan_[id];
    const MeetingId meeting = plan::meeting_of(task);
    const auto of_parameters = [&](const std::vector<BufferId>& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](BufferId one) { return std::holds_alternative<plan::ParameterPart>(plan_[one].content); });
    };
    int kind = of_parameters(task.reads) || of_parameters(task.writes) ? 1 : 0;
    if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
      kind = transfer->end == plan::Transfer::End::send ? 2 : 3;
    }
    StreamKey key{task.device, kind, stands_for.reach.empty() ? Reach::members : stands_for.reach[meeting.index()], {}};
    for (const TaskId member : plan_.members(meeting)) {
      std::get<3>(key).push_back(plan_[member].device);
    }
    std::sort(std::get<3>(key).begin(), std::get<3>(key).end());
    return key;
  }

  /// If streams are separate: each has its order, and a task comes after those of its device that touched its buffers. Lists the
  /// predecessors of each.
  void find_edges_of_streams(const StandsFor& stands_for) {
    std::map<StreamKey, TaskId> last_of_stream;
    struct Touched {
      TaskId writer;
      std::vector<TaskId> readers;
    };
    std::vector<Touched> touched(plan_.buffers().size());
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      const TaskId id(t);
      const plan::Task& task = plan_[id];
      if (nodes_[t].kind == TaskType::member) {
        const auto [found, added] = last_of_stream.try_emplace(stream_of(id, stands_for), id);
        if (!added) {
          stream_edges_.emplace_back(std::exchange(found->second, id), id);
        }
      }
      const auto after = [&](TaskId before) {
        if (before.valid() && before != id &&
            (task.lane == Lane::communication) + (plan_[before].lane == Lane::communication) > 0) {
          stream_edges_.emplace_back(before, id);
        }
      };
      for (const BufferId buffer : task.reads) {
        after(touched[buffer.index()].writer);
      }
      for (const BufferId buffer : task.writes) {
        Touched& one = touched[buffer.index()];
        after(one.writer);
        std::for_each(one.readers.begin(), one.readers.end(), after);
        one = {id, {}};
      }
      for (const BufferId buffer : task.reads) {
        if (touched[buffer.index()].writer != id) {
          touched[buffer.index()].readers.push_back(id);
        }
      }
    }
  }

  /// Successor lists: lane order plus reversed `after`.
  void connect(const StandsFor& stands_for) {
    first_next_.assign(nodes_.size() + 1, 0);
    if (streams_apart_) {
      find_edges_of_streams(stands_for);
    }
    const auto each_edge = [&](auto visit) {
      for (const auto& [before, after] : stream_edges_) {
        visit(before, after);
      }
      for (std::size_t t = 0; t < nodes_.size(); ++t) {
        if (streams_apart_ && plan_.tasks()[t].lane == Lane::communication && nodes_[t].kind == TaskType::member) {
          continue;
        }
        if (!cells_.empty() && is_transfer(TaskId(t))) {
          continue;
        }
        TaskId before = plan_.before(TaskId(t));
        while (!cells_.empty() && before.valid() && is_transfer(before)) {
          before = plan_.before(before);
        }
        if (before.valid()) {
          visit(before, TaskId(t));
        }
      }
      if (!cells_.empty()) {
        each_edge_of_messages(visit);
      }
      for (std::size_t t = 0; t < nodes_.size(); ++t) {
        for (const TaskId before : plan_.tasks()[t].after) {
          visit(before, TaskId(t));
        }
      }
    };
    each_edge([&](TaskId before, TaskId) { ++first_next_[before.index() + 1]; });
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      first_next_[t + 1] += first_next_[t];
    }
    next_.resize(first_next_.back());
    std::vector<std::uint32_t> place(first_next_.begin(), first_next_.end() - 1);
    each_edge([&](TaskId before, TaskId after) {
      next_[place[before.index()]++] = after;
      ++nodes_[after.index()].waits;
    });
  }

  void prepare(MeetingId id, const cluster::Cluster& cluster, const StandsFor& stands_for) {
    Meeting& meeting = meetings_[id.index()];
    meeting.members = plan_.members(id);
    if (meeting.members.empty()) {
      return;
    }
    std::int64_t apart = 0;
    for (const TaskId member : meeting.members) {
      const Node& node = nodes_[member.index()];
      (node.engine.valid() ? meeting.copying.count : apart) += node.duration.count;
    }
    // Separate lanes copy by themselves, all members' side by side.
    meeting.min_duration = Nanoseconds(apart / static_cast<std::int64_t>(meeting.members.size()));
    if (cluster.wiring()) {
      Expanded& expanded = expanded_[kind_of(id, stands_for)];
      if (!expanded.known) {
        expanded.legs = expand(plan_, id, links_, cluster, stands_for);
        expanded.core_share = (crosses_nodes(id, cluster, stands_for) ? cluster.wiring()->network : cluster.wiring()->port)
                                  .core_share;
        expanded.known = true;
      }
      meeting.legs = expanded.legs;
      meeting.core_share = expanded.core_share;
    }
    if (cluster.emulated_link()) {
      meeting.core_share = std::max(meeting.core_share, cluster.emulated_link()->core_share);
      meeting.min_duration = std::max(meeting.min_duration, cost::link_time(plan_, id, *cluster.emulated_link()));
    }
  }

  /// The properties of a meeting on which its loads depend: the same collective of as many bytes between the same devices is
  /// expanded once.
  MeetingKind kind_of(MeetingId id, const StandsFor& stands_for) const {
    const plan::Task& first = plan_[plan_.members(id)[0]];
    MeetingKind kind{.move = plan::move_of(first),
                     .reach = stands_for.reach.empty() ? Reach::members : stands_for.reach[id.index()],
                     .bytes = plan::bytes_of(plan_, plan::payload(first)).count,
                     .members = {}};
    for (const TaskId member : plan_.members(id)) {
      kind.members.emplace_back(plan::rank_of(plan_[member]), plan_[member].device.value);
    }
    std::sort(kind.members.begin(), kind.members.end());
    return kind;
  }

  /// True if its messages go from node to node.
  bool crosses_nodes(MeetingId id, const cluster::Cluster& cluster, const StandsFor& stands_for) const {
    const std::vector<DeviceId> members = meetings_of(plan_, id, cluster, stands_for)[0];
    return std::any_of(members.begin(), members.end(),
                       [&](DeviceId one) { return cluster.device(one).node != cluster.device(members[0]).node; });
  }

  void reset() {
    now_ = Nanoseconds(0);
    ended_ = 0;
    queue_.clear();
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      waits_[t] = nodes_[t].waits;
    }
    std::fill(fronts_.begin(), fronts_.end(), Front{});
    for (Meeting& meeting : meetings_) {
      meeting.arrived = meeting.leg = meeting.parts = meeting.wires = meeting.workers = 0;
      meeting.begun = meeting.over = false;
      meeting.met = meeting.since = Nanoseconds(0);
      meeting.left = meeting.copying;
    }
    for (Engine& engine : engines_) {
      engine.busy = engine.queued = false;
      engine.task = {};
      engine.meeting = {};
      engine.messages.clear();
      engine.turn = 0;
    }
  }

  // ------------------------------------------------------------------------------------------------ tasks

  /// All predecessors of the task have ended. If lanes are separate it then starts; otherwise when its engine takes it up.
  void become_ready(TaskId task) {
    const Node& node = nodes_[task.index()];
    if (!node.engine.valid()) {
      Nanoseconds issued = node.issued;
      if (node.cell.valid()) {
        Cell& cell = cells_[node.cell.index()];
        if (cell.first == task) {
          const Nanoseconds free = cell.before.valid() ? cells_[cell.before.index()].begun + cells_[cell.before.index()].issuing
                                                       : Nanoseconds(0);
          cell.begun = cell.waits ? std::max(free, events_[task.index()].start) : free;
        }
        issued += cell.begun;
      }
      events_[task.index()].start = std::max(events_[task.index()].start, issued);
      starting_.push_back(task);
    } else {
      fronts_[node.slot.index()] = {task};
      note(node.engine);
    }
  }

  /// If lanes are separate, a task's end is known as soon as it starts, even if that lies ahead of the clock. Only meetings wait
  /// for the clock, since they compete for the links.
  void start_ready() {
    while (!starting_.empty()) {
      const TaskId task = starting_.back();
      starting_.pop_back();
      const Node& node = nodes_[task.index()];
      if (node.kind == TaskType::member) {
        if (const Meeting& meeting = arrive(node.meeting, events_[task.index()].start); complete(meeting)) {
          push({meeting.met, ClockEventKind::meeting_begins, node.meeting.value, 0});
        }
      } else {
        end(task, events_[task.index()].start + node.duration);
      }
    }
  }

  /// Until they start, the start of a task's successors is the latest end of their predecessors.
  void end(TaskId task, Nanoseconds time) {
    constexpr std::int64_t longest_step = 4'000'000'000'000'000'000;  // more, and sums of times would overflow
    if (time.count > longest_step) {
      throw usage_error("the step would take longer than a century: a rate or a bandwidth is too small");
    }
    events_[task.index()].end = time;
    ++ended_;
    for (std::uint32_t i = first_next_[task.index()]; i < first_next_[task.index() + 1]; ++i) {
      const TaskId other = next_[i];
      events_[other.index()].start = std::max(events_[other.index()].start, time);
      if (--waits_[other.index()] == 0) {
        become_ready(other);
      }
    }
  }

  // ------------------------------------------------------------------------------------------------ meetings

  const Meeting& arrive(MeetingId id, Nanoseconds time) {
    Meeting& meeting = meetings_[id.index()];
    meeting.met = std::max(meeting.met, time);
    ++meeting.arrived;
    return meeting;
  }
  static bool complete(const Meeting& meeting) { return meeting.arrived == meeting.members.size(); }

  void begin(MeetingId id) {
    Meeting& meeting = meetings_[id.index()];
    meeting.begun = true;
    meeting.parts = 1;  // this function
    if (meeting.copying.count > 0) {
      ++meeting.parts;
      meeting.since = now_;
      note_members(meeting);
    }
    if (!meeting.legs.empty()) {
      ++meeting.parts;
      push({now_ + meeting.legs[0].latency, ClockEventKind::flow_begins, id.value, 0});
    }
    if (meeting.min_duration.count > 0) {
      ++meeting.parts;
      push({now_ + meeting.min_duration, ClockEventKind::min_duration_ends, id.value, 0});
    }
    meeting.wires = (meeting.legs.empty() ? 0U : 1U) + (meeting.min_duration.count > 0 ? 1U : 0U);
    if (meeting.wires > 0) {
      carry(meeting, true);
    }
    end_part(meeting);
  }

  void end_wire(Meeting& meeting) {
    if (--meeting.wires == 0) {
      carry(meeting, false);
    }
    end_part(meeting);
  }

  /// Its messages start, or have all arrived. Messages of several meetings share a link, so together they take at most the largest
  /// share of a core among them.
  void carry(const Meeting& meeting, bool begins) {
    if (meeting.core_share == 0) {
      return;
    }
    for (const TaskId member : meeting.members) {
      if (const EngineId id = nodes_[member.index()].engine; id.valid()) {
        Engine& engine = engines_[id.index()];
        settle(engine);
        if (begins) {
          engine.messages.push_back(meeting.core_share);
        } else {
          engine.messages.erase(std::find(engine.messages.begin(), engine.messages.end(), meeting.core_share));
        }
        expect_end(engine);
      }
    }
  }

  void end_part(Meeting& meeting) {
    if (--meeting.parts > 0) {
      return;
    }
    meeting.over = true;
    for (const TaskId member : meeting.members) {
      if (!nodes_[member.index()].engine.valid()) {
        end(member, now_);
      }
    }
    note_members(meeting);  // their engines have yet to find out
  }

  void begin_flow(MeetingId id) {
    Meeting& meeting = meetings_[id.index()];
    reschedule(traffic_.begin(id.value, meeting.legs[meeting.leg].loads, now_));
  }

  void end_flow(MeetingId id) {
    reschedule(traffic_.end(id.value, now_));
    Meeting& meeting = meetings_[id.index()];
    if (++meeting.leg < meeting.legs.size()) {
      push({now_ + meeting.legs[meeting.leg].latency, ClockEventKind::flow_begins, id.value, 0});
    } else {
      end_wire(meeting);
    }
  }

  void reschedule(const std::vector<Traffic::Change>& changes) {
    for (const Traffic::Change& change : changes) {
      push({change.end, ClockEventKind::flow_ends, change.flow, change.version});
    }
  }

  // ------------------------------------------------------------------------------------------------ engines

  void note(EngineId id) {
    Engine& engine = engines_[id.index()];
    if (!engine.busy && !engine.queued) {
      engine.queued = true;
      to_look_at_.push_back(id);
    }
  }
  void note_members(const Meeting& meeting) {
    for (const TaskId member : meeting.members) {
      if (nodes_[member.index()].engine.valid()) {
        note(nodes_[member.index()].engine);
      }
    }
  }
  /// In the order in which they were queued.
  EngineId take_engine() {
    const EngineId id = to_look_at_[looked_at_++];
    if (looked_at_ == to_look_at_.size()) {
      to_look_at_.clear();
      looked_at_ = 0;
    }
    engines_[id.index()].queued = false;
    return id;
  }

  /// A free engine looks at its lanes, and takes up a task that it finds.
  void look(EngineId id) {
    Engine& engine = engines_[id.index()];
    for (std::size_t i = 0; i < engine.devices.size() && !engine.busy; ++i) {
      serve(id, engine.devices[(engine.turn + i) % engine.devices.size()]);
    }
    for (std::size_t i = 0; i < engine.devices.size() && !engine.busy; ++i) {
      help(id, engine.devices[i]);
    }
    engine.turn = (engine.turn + 1) % engine.devices.size();
  }

  void serve(EngineId id, DeviceId device) {
    Engine& engine = engines_[id.index()];
    for (const Lane lane : plan::serving_order) {
      Front& front = fronts_[slot_of(device, static_cast<std::size_t>(lane)).index()];
      if (!front.task.valid()) {
        continue;
      }
      const TaskId task = front.task;
      const Node& node = nodes_[task.index()];
      if (node.kind == TaskType::member) {
        take_part(id, front);
      } else {
        front = {};
        events_[task.index()].start = now_;
        if (node.kind == TaskType::work) {
          engine.busy = true;
          engine.task = task;
          engine.left = static_cast<double>(node.duration.count);
          engine.since = now_;
          expect_end(engine);
        } else {
          push({now_ + node.duration, ClockEventKind::task_ends, task.value, 0});
        }
      }
      if (engine.busy) {
        return;
      }
    }
  }

  /// The speed of its computing while messages are under way, relative to that without.
  static double pace(const Engine& engine) {
    const auto largest = std::max_element(engine.messages.begin(), engine.messages.end());
    return largest == engine.messages.end() ? 1 : std::max(least_pace, 1 - *largest / engine.cores);
  }
  void settle(Engine& engine) const {
    if (engine.task.valid()) {
      engine.left = std::max(0.0, engine.left - static_cast<double>((now_ - engine.since).count) * pace(engine));
      engine.since = now_;
    }
  }
  void expect_end(Engine& engine) {
    if (engine.task.valid()) {
      push({now_ + Nanoseconds(std::llround(engine.left / pace(engine))), ClockEventKind::task_ends, engine.task.value,
            ++engine.pace_version});
    }
  }

  void take_part(EngineId id, Front& front) {
    const TaskId task = front.task;
    const Node& node = nodes_[task.index()];
    const Meeting& meeting = meetings_[node.meeting.index()];
    if (!front.arrived) {
      front.arrived = true;
      events_[task.index()].start = now_;
      if (complete(arrive(node.meeting, now_))) {
        if (meeting.met == now_) {
          begin(node.meeting);  // the last to arrive goes to work before it looks at anything else
        } else {
          push({meeting.met, ClockEventKind::meeting_begins, node.meeting.value, 0});
        }
      }
    }
    if (meeting.over) {
      front = {};
      end(task, now_);
    } else if (meeting.begun && !front.part_taken && node.duration.count > 0 && copying_left(meeting).count > 0) {
      front.part_taken = true;
      join(id, node.meeting);
      push({now_ + node.duration, ClockEventKind::part_ends, id.value, engines_[id.index()].version});
    }
  }

  /// If they have nothing else to do, cores work at the rest of the meeting they wait for. A part of a GPU does its own share only.
  void help(EngineId id, DeviceId device) {
    if (messages_apart_[device.index()]) {
      return;
    }
    for (std::size_t lane = 0; lane < lane_count && !engines_[id.index()].busy; ++lane) {
      const TaskId task = fronts_[slot_of(device, lane).index()].task;
      if (!task.valid() || nodes_[task.index()].kind != TaskType::member) {
        continue;
      }
      const MeetingId meeting = nodes_[task.index()].meeting;
      if (meetings_[meeting.index()].begun && copying_left(meetings_[meeting.index()]).count > 0) {
        join(id, meeting);
      }
    }
  }

  Nanoseconds copying_left(const Meeting& meeting) const { return meeting.left - (now_ - meeting.since) * meeting.workers; }

  void join(EngineId id, MeetingId meeting) {
    Engine& engine = engines_[id.index()];
    engine.busy = true;
    engine.meeting = meeting;
    ++engine.version;
    set_workers(meeting, meetings_[meeting.index()].workers + 1);
  }

  void set_workers(MeetingId id, std::uint32_t workers) {
    Meeting& meeting = meetings_[id.index()];
    meeting.left = copying_left(meeting);
    meeting.since = now_;
    meeting.workers = workers;
    ++meeting.version;
    if (workers > 0) {
      const Nanoseconds time((meeting.left.count + workers - 1) / workers);
      push({now_ + time, ClockEventKind::copying_ends, id.value, meeting.version});
    }
  }

  void leave(EngineId id) {
    Engine& engine = engines_[id.index()];
    engine.busy = false;
    engine.meeting = {};
    note(id);
  }

  void end_copying(MeetingId id) {
    Meeting& meeting = meetings_[id.index()];
    meeting.left = Nanoseconds(0);
    meeting.workers = 0;
    for (const TaskId member : meeting.members) {
      const EngineId engine = nodes_[member.index()].engine;
      if (engine.valid() && engines_[engine.index()].meeting == id) {
        leave(engine);
      }
    }
    end_part(meeting);
  }

  // ------------------------------------------------------------------------------------------------ the clock

  void happen(const ClockEvent& event) {
    switch (event.kind) {
      case ClockEventKind::task_ends:
        end_task(TaskId(event.number), event.version);
        break;
      case ClockEventKind::copying_ends:
        if (const MeetingId id(event.number); event.version == meetings_[id.index()].version) {
          end_copying(id);
        }
        break;
      case ClockEventKind::part_ends:
        end_part_of(EngineId(event.number), event.version);
        break;
      case ClockEventKind::flow_ends:
        if (event.version == traffic_.version(event.number)) {
          end_flow(MeetingId(event.number));
        }
        break;
      case ClockEventKind::flow_begins:
        begin_flow(MeetingId(event.number));
        break;
      case ClockEventKind::meeting_begins:
        begin(MeetingId(event.number));
        break;
      case ClockEventKind::min_duration_ends:
        end_wire(meetings_[MeetingId(event.number).index()]);
        break;
    }
  }

  /// A task of an engine ends, unless it is now expected to end at another time.
  void end_task(TaskId id, std::uint32_t version) {
    const Node& node = nodes_[id.index()];
    if (node.kind == TaskType::work) {
      Engine& engine = engines_[node.engine.index()];
      if (engine.task != id || engine.pace_version != version) {
        return;
      }
      engine.busy = false;
      engine.task = {};
    }
    note(node.engine);
    end(id, now_);
  }

  /// An engine has done its part of the copying of a meeting, unless all of it was done before.
  void end_part_of(EngineId id, std::uint32_t version) {
    if (const Engine& engine = engines_[id.index()]; engine.meeting.valid() && version == engine.version) {
      set_workers(engine.meeting, meetings_[engine.meeting.index()].workers - 1);
      leave(id);
    }
  }

  void push(const ClockEvent& event) {
    queue_.push_back(event);
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }
  ClockEvent pop() {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const ClockEvent first = queue_.back();
    queue_.pop_back();
    return first;
  }

  plan::Plan plan_;
  Links links_;
  Traffic traffic_;
  std::vector<Node> nodes_;
  std::vector<Event> crossing_;            // by task: only the bytes that it sends and receives
  std::vector<std::uint32_t> first_next_;  // into next_, by task
  std::vector<TaskId> next_;
  std::map<MeetingKind, Expanded> expanded_;
  std::vector<Meeting> meetings_;
  std::vector<Engine> engines_;
  std::vector<bool> messages_apart_;  // by device: only its collectives take turns with computing
  std::vector<Cell> cells_;           // if hosts wait for messages
  std::map<CellKey, CellId> cell_of_;
  bool streams_apart_ = false;
  std::vector<std::pair<TaskId, TaskId>> stream_edges_;  // if streams are separate: before and after

  // The state in the current step.
  Nanoseconds now_;
  Event* events_ = nullptr;
  std::size_t ended_ = 0;
  std::vector<std::uint32_t> waits_;  // by task: for how many it still waits
  std::vector<Front> fronts_;         // by device and lane, where an engine serves it
  std::vector<TaskId> starting_;
  std::vector<EngineId> to_look_at_;  // engines to look at
  std::size_t looked_at_ = 0;         // how many of those engines have been looked at
  std::vector<ClockEvent> queue_;     // a heap
};

Simulator::Simulator(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost,
                     const StandsFor& stands_for)
    : walk_(std::make_unique<Walk>(plan, cluster, cost, stands_for)) {}

Simulator::~Simulator() = default;

void Simulator::run(trace::StepTrace& step) { walk_->run(step); }

trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& cost,
                          const StandsFor& stands_for) {
  trace::StepTrace step;
  Simulator(plan, cluster, cost, stands_for).run(step);
  return step;
}

}  // namespace baton::sim
