#include <limits>

#include "baton/base/error.h"
#include "baton/plan/plan.h"

namespace baton::plan {
namespace {

/// The work of one member: it receives its own share from the others to sum it up, and sends it back to them if the collective
/// spreads it. (A ring moves the same.)
TaskWork collective_work(const Plan& plan, const Task& task, const Collective& collective) {
  const MoveRule& rule = rule_of(collective.kind);
  const auto n = static_cast<std::int64_t>(collective.size);
  std::int64_t whole = 0;
  std::int64_t width = 4;
  for (const BufferId id : payload(task)) {
    whole += plan[id].shape.elements();
    width = size_of(plan[id].dtype);
  }
  std::int64_t own = 0;
  if (rule.owner == MoveRule::Owner::piece) {
    for (const BufferId id : pieces(task)) {
      own += plan[id].shape.elements();
    }
  } else {
    own = owned(collective.kind, whole, collective.rank, n);
  }
  const Moved moved = moved_by(collective.kind, own, whole, n);
  const std::int64_t additions = rule.sums ? n - 1 + (collective.accumulate ? 1 : 0) : 0;
  return {.flops = Flops(additions * own + (collective.sgd_rate > 0 ? 2 * whole : 0)),
          .read = bytes_of(plan, task.reads),
          .written = bytes_of(plan, task.writes),
          .sent = Bytes(moved.sent * width),
          .received = Bytes(moved.received * width)};
}

}  // namespace

op::ElementPlaces places_of(const Plan& plan, BufferId id) {
  const Buffer& buffer = plan[id];
  const auto* part = std::get_if<ValuePart>(&buffer.content);
  const bool known = part != nullptr && part->value.index() < plan.graph().values.size();
  const Shape& whole = known ? plan.graph().values[part->value.index()].shape : buffer.shape;
  op::ElementPlaces places;
  for (std::size_t d = 0; d < buffer.shape.rank(); ++d) {
    const Range held = known ? part->at[d] : Range{0, buffer.shape[d]};
    if (d > 0 && held == Range{0, whole[d]}) {  // one with the dimension before it
      places.held[places.rank - 1] *= whole[d];
      places.begin[places.rank - 1] *= whole[d];
      places.whole[places.rank - 1] *= whole[d];
      continue;
    }
    check(places.rank < op::ElementPlaces::max_rank, "a part of more than {} dimensions", op::ElementPlaces::max_rank);
    places.held[places.rank] = held.size();
    places.begin[places.rank] = held.begin;
    places.whole[places.rank] = whole[d];
    ++places.rank;
  }
  return places;
}

std::vector<op::Operand> operands_of(std::span<const Buffer> buffers, std::span<const BufferId> ids) {
  std::vector<op::Operand> list;
  list.reserve(ids.size());
  for (const BufferId id : ids) {
    list.push_back({buffers[id.index()].shape, buffers[id.index()].dtype});
  }
  return list;
}

std::optional<op::ProductExtents> product_extents(std::span<const Buffer> buffers, const Task& task) {
  const auto* compute = std::get_if<Compute>(&task.action);
  return compute == nullptr ? std::nullopt
                            : op::product_extents(compute->op, operands_of(buffers, task.reads), operands_of(buffers, task.writes));
}

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
      const op::Work work = op::work(compute.op, operands_of(plan.buffers(), task.reads), operands_of(plan.buffers(), task.writes));
      return {work.flops, work.read, work.written, {}, {}};
    }
    TaskWork operator()(const Transfer& transfer) const {
      const Bytes size = bytes_of(plan, task.reads) + bytes_of(plan, task.writes);
      return transfer.end == Transfer::End::send ? TaskWork{{}, size, {}, size, {}} : TaskWork{{}, {}, size, {}, size};
    }
    TaskWork operator()(const Collective& collective) const { return collective_work(plan, task, collective); }
    TaskWork operator()(const Update& update) const {
      std::int64_t elements = 0;
      for (std::size_t i = 0; i < updated_count(task); ++i) {
        elements += plan[task.writes[i]].shape.elements();
      }
      return {Flops(elements *
                    (op::flops_per_element(update.optimizer) + (update.scaled || op::clip_of(update.optimizer) > 0 ? 1 : 0))),
              bytes_of(plan, task.reads),
              bytes_of(plan, task.writes),
              {},
              {}};
    }
    TaskWork operator()(const Delay&) const { return {}; }
    TaskWork operator()(const Load&) const { return {{}, {}, bytes_of(plan, task.writes), {}, {}}; }
    TaskWork operator()(const Take&) const { return {{}, bytes_of(plan, task.reads), bytes_of(plan, task.writes), {}, {}}; }
  } visitor{plan, task};
  return std::visit(visitor, task.action);
}

namespace {

/// The work of all devices in a step may exceed 64 bits: then it stays at the largest number.
Flops sum_of(Flops a, Flops b) {
  std::int64_t sum = 0;
  return Flops(__builtin_add_overflow(a.count, b.count, &sum) ? std::numeric_limits<std::int64_t>::max() : sum);
}
Flops product_of(Flops a, std::int64_t copies) {
  std::int64_t product = 0;
  return Flops(__builtin_mul_overflow(a.count, copies, &product) ? std::numeric_limits<std::int64_t>::max() : product);
}

}  // namespace

TaskWork& TaskWork::operator+=(const TaskWork& other) {
  flops = sum_of(flops, other.flops);
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
  return {.work = {.flops = product_of(work.flops, copies),
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
