#pragma once

#include <fmt/format.h>

#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"
#include "baton/plan/plan.h"
#include "baton/sim/simulate.h"

namespace baton::sim {

/// A plan put together task by task, with the time of each. Times are in nanoseconds, sizes in bytes (whole floats).
struct ByHand {
  using Lane = plan::Lane;

  std::size_t devices = 1;
  std::vector<plan::Buffer> buffers = {};
  std::vector<plan::Task> tasks = {};
  std::vector<std::int64_t> times = {};  // for a meeting's task: the time that its device's own cores work on it

  TaskId compute(std::size_t device, std::int64_t time, std::vector<TaskId> after = {}, Lane lane = Lane::compute) {
    return add(plan::Compute{op::Relu{}}, device, lane, time, std::move(after), {}, {});
  }
  TaskId product(std::size_t device, std::int64_t time, std::vector<TaskId> after = {}) {
    return add(plan::Compute{op::MatrixProduct{}}, device, Lane::compute, time, std::move(after), {}, {});
  }
  TaskId delay(std::size_t device, std::int64_t time) {
    return add(plan::Delay{Nanoseconds(time)}, device, Lane::compute, 0, {}, {}, {});
  }
  TaskId send(std::size_t device, std::size_t to, std::size_t meeting, std::int64_t bytes, std::vector<TaskId> after = {},
              Lane lane = Lane::communication) {
    return add(plan::Transfer{plan::Transfer::End::send, MeetingId(meeting), DeviceId(to)}, device, lane, 0, std::move(after),
               {buffer(device, bytes)}, {});
  }
  TaskId receive(std::size_t device, std::size_t from, std::size_t meeting, std::int64_t bytes, std::int64_t copying = 0,
                 Lane lane = Lane::communication) {
    return add(plan::Transfer{plan::Transfer::End::receive, MeetingId(meeting), DeviceId(from)}, device, lane, copying, {}, {},
               {buffer(device, bytes)});
  }
  /// One member; ranks are the devices' numbers.
  TaskId collective(plan::Move kind, std::size_t device, std::size_t meeting, std::int64_t bytes, std::vector<TaskId> after = {},
                    std::int64_t copying = 0) {
    const BufferId payload = buffer(device, bytes);
    const bool reads = kind != plan::Move::all_gather && (kind != plan::Move::broadcast || device == 0);
    return add(plan::Collective{kind, MeetingId(meeting), static_cast<std::uint32_t>(device), static_cast<std::uint32_t>(devices)},
               device, Lane::communication, copying, std::move(after), reads ? std::vector{payload} : std::vector<BufferId>{},
               reads ? std::vector<BufferId>{} : std::vector{payload});
  }

  plan::Plan plan() const {
    std::vector<std::string> names;
    for (std::size_t d = 0; d < devices; ++d) {
      names.push_back(fmt::format("d{}", d));
    }
    return plan::Plan("by hand", names, buffers, tasks);
  }

  /// (start, end) of every task.
  using Times = std::vector<std::pair<std::int64_t, std::int64_t>>;
  Times walk(const cluster::Cluster& cluster) const {
    const plan::Plan whole = plan();
    Times list;
    for (const trace::Event& event : simulate(whole, cluster, Given{{}, times}).events) {
      list.emplace_back(event.start.count, event.end.count);
    }
    return list;
  }

  /// The times as they were written down.
  struct Given final : cost::CostModel {
    Given(int, std::vector<std::int64_t> list) : times(std::move(list)) {}
    Nanoseconds duration(const plan::Plan&, TaskId task) const override { return Nanoseconds(times[task.index()]); }
    Nanoseconds copying(const plan::Plan&, TaskId task) const override { return Nanoseconds(times[task.index()]); }
    std::string origin() const override { return "by hand"; }
    std::vector<std::int64_t> times;
  };

 private:
  BufferId buffer(std::size_t device, std::int64_t bytes) {
    buffers.push_back({.device = DeviceId(device), .shape = Shape{bytes / 4}, .content = {}, .label = ""});
    return BufferId(buffers.size() - 1);
  }
  TaskId add(plan::Action action, std::size_t device, Lane lane, std::int64_t time, std::vector<TaskId> after,
             std::vector<BufferId> reads, std::vector<BufferId> writes) {
    plan::Task task;
    task.action = std::move(action);
    task.device = DeviceId(device);
    task.lane = lane;
    task.after = std::move(after);
    task.reads = std::move(reads);
    task.writes = std::move(writes);
    tasks.push_back(std::move(task));
    times.push_back(time);
    return TaskId(tasks.size() - 1);
  }
};

/// Devices whose lanes are separate, `in_node` of them in each node.
inline cluster::Cluster wired(std::size_t count, cluster::Wiring wiring, std::size_t in_node = 1000) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({.name = fmt::format("d{}", d),
                    .cores = {},
                    .memory = Bytes(1 << 30),
                    .node = static_cast<int>(d / in_node),
                    .shared_lanes = false});
  }
  return cluster::Cluster(std::move(list), std::nullopt, wiring);
}
/// With free links.
inline cluster::Cluster free_links(std::size_t count) { return wired(count, {}); }

/// Devices of one core each (or all on core 0) that carry their messages themselves.
inline cluster::Cluster shared(std::size_t count, std::optional<cluster::Link> emulated = std::nullopt, bool one_core = false) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({fmt::format("d{}", d), {one_core ? 0 : static_cast<int>(d)}, Bytes(1 << 30)});
  }
  return cluster::Cluster(std::move(list), emulated);
}

/// One byte a nanosecond.
inline cluster::Link slow(std::int64_t latency) { return {Nanoseconds(latency), 1e9}; }

}  // namespace baton::sim
