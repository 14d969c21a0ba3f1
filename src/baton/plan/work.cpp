#include <array>

#include "baton/base/error.h"
#include "baton/plan/plan.h"

namespace baton::plan {
namespace {

std::vector<op::Operand> operands(const Plan& plan, const std::vector<BufferId>& ids) {
  std::vector<op::Operand> list;
  list.reserve(ids.size());
  for (const BufferId id : ids) {
    list.push_back({plan[id].shape, plan[id].dtype});
  }
  return list;
}

/// Of a collective that leaves or takes pieces: what falls to this rank goes between it and each other, in or out.
TaskWork piece_work(const Plan& plan, const Task& task, const Collective& collective) {
  TaskWork work{{}, bytes_of(plan, task.reads), bytes_of(plan, task.writes), {}, {}};
  const auto n = static_cast<std::int64_t>(collective.size);
  const Bytes whole = bytes_of(plan, payload(task));
  const Bytes own = bytes_of(plan, pieces(task));
  const bool reduces = collective.kind == Collective::Kind::reduce_scatter;
  (reduces ? work.received : work.sent) = own * (n - 1);
  (reduces ? work.sent : work.received) = whole - own;
  for (const BufferId id : pieces(task)) {
    work.flops += Flops(reduces ? (n - 1 + (collective.accumulate ? 1 : 0)) * plan[id].shape.elements() : 0);
  }
  return work;
}

/// What one member moves. An all-reduce is counted as the reduce-scatter and all-gather it is made of: each
/// member sums one slice, so it takes that slice from the others and hands the sum back. (A ring moves the same.)
TaskWork collective_work(const Plan& plan, const Task& task, const Collective& collective) {
  const Bytes size = bytes_of(plan, payload(task));
  const auto n = static_cast<std::int64_t>(collective.size);
  const auto rank = static_cast<std::int64_t>(collective.rank);
  TaskWork work{{}, bytes_of(plan, task.reads), bytes_of(plan, task.writes), {}, {}};
  switch (collective.kind) {
    case Collective::Kind::all_reduce: {
      std::int64_t elements = 0;
      std::int64_t width = 4;
      for (const BufferId id : payload(task)) {
        elements += plan[id].shape.elements();
        width = size_of(plan[id].dtype);
      }
      const std::int64_t slice = (rank + 1) * elements / n - rank * elements / n;
      work.flops = Flops((n - 1) * slice + (collective.sgd_rate > 0 ? 2 * elements : 0));
      work.sent = work.received = Bytes(((n - 1) * slice + elements - slice) * width);
      break;
    }
    case Collective::Kind::broadcast:
      (rank == 0 ? work.sent : work.received) = rank == 0 ? size * (n - 1) : size;
      break;
    case Collective::Kind::reduce:
      (rank == 0 ? work.received : work.sent) = rank == 0 ? size * (n - 1) : size;
      for (const BufferId id : task.writes) {
        work.flops += Flops((n - 1) * plan[id].shape.elements());  // the root sums
      }
      break;
    case Collective::Kind::reduce_scatter:
    case Collective::Kind::all_gather:
      return piece_work(plan, task, collective);
  }
  return work;
}

}  // namespace

Bytes bytes_of(const Plan& plan, std::span<const BufferId> buffers) {
  Bytes sum;
  for (const BufferId id : buffers) {
    sum += plan[id].size();
  }
  return sum;
}

TaskWork work(const Plan& plan, TaskId id) {
  const Task& task = plan[id];
  struct {
    const Plan& plan;
    const Task& task;
    TaskWork operator()(const Compute& compute) const {
      const op::Work work = op::work(compute.op, operands(plan, task.reads), operands(plan, task.writes));
      return {work.flops, work.read, work.written, {}, {}};
    }
    TaskWork operator()(const Transfer& transfer) const {
      const Bytes size = bytes_of(plan, task.reads) + bytes_of(plan, task.writes);
      return transfer.end == Transfer::End::send ? TaskWork{{}, size, {}, size, {}} : TaskWork{{}, {}, size, {}, size};
    }
    TaskWork operator()(const Collective& collective) const { return collective_work(plan, task, collective); }
    TaskWork operator()(const Update& update) const {
      std::int64_t elements = 0;
      for (std::size_t i = 0; i < task.writes.size() / (1 + op::state_slots(update.optimizer)); ++i) {
        elements += plan[task.writes[i]].shape.elements();
      }
      return {Flops(elements * (op::flops_per_element(update.optimizer) + (update.scaled ? 1 : 0))),
              bytes_of(plan, task.reads),
              bytes_of(plan, task.writes),
              {},
              {}};
    }
    TaskWork operator()(const Delay&) const { return {}; }
  } visitor{plan, task};
  return std::visit(visitor, task.action);
}

TaskWork& TaskWork::operator+=(const TaskWork& other) {
  flops += other.flops;
  read += other.read;
  written += other.written;
  sent += other.sent;
  received += other.received;
  return *this;
}

Totals& Totals::operator+=(const Totals& other) {
  work += other.work;
  tasks += other.tasks;
  transfers_forward += other.transfers_forward;
  transfers += other.transfers;
  collectives += other.collectives;
  return *this;
}

Totals operator*(const Totals& totals, std::int64_t copies) {
  const TaskWork& work = totals.work;
  return {.work = {.flops = work.flops * copies,
                   .read = work.read * copies,
                   .written = work.written * copies,
                   .sent = work.sent * copies,
                   .received = work.received * copies},
          .tasks = totals.tasks * copies,
          .transfers_forward = totals.transfers_forward * copies,
          .transfers = totals.transfers * copies,
          .collectives = totals.collectives * copies};
}

std::vector<Totals> totals_by_device(const Plan& plan) {
  std::vector<Totals> all(plan.devices().size());
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    const Task& task = plan.tasks()[i];
    Totals& totals = all[task.device.index()];
    totals.work += work(plan, TaskId(i));
    totals.tasks += 1;
    if (const auto* transfer = std::get_if<Transfer>(&task.action); transfer && transfer->end == Transfer::End::send) {
      totals.transfers += 1;
      totals.transfers_forward += task.labels.phase == Phase::forward ? 1 : 0;
    }
    totals.collectives += std::holds_alternative<Collective>(task.action) ? 1 : 0;
  }
  return all;
}

}  // namespace baton::plan
