#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "baton/base/error.h"
#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Compute;
using plan::Phase;
using plan::Role;
using plan::Task;
using plan::Update;

/// True if a buffer stays float32 in any precision: persistent parameters and statistics, and the states of the optimizer.
bool is_master(const Buffer& buffer) {
  return buffer.persistent &&
         (buffer.role == Role::parameter || buffer.role == Role::optimizer_state || buffer.role == Role::statistic);
}

/// True if it holds part of the residual stream, or of its gradient.
bool is_wide(const plan::Graph& graph, const Buffer& buffer) {
  const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
  return part != nullptr && part->value.index() < graph.values.size() && graph.values[part->value.index()].wide;
}

bool is_parameter_gradient(const Buffer& buffer) {
  return buffer.role == Role::gradient && std::holds_alternative<plan::ParameterPart>(buffer.content);
}

/// Marks the operands that an op asks to be float32: the statistics of a softmax, and the state of a loss scaler.
void mark_states(const std::vector<op::Axes>& axes, const std::vector<BufferId>& operands, std::vector<bool>& marked) {
  for (std::size_t i = 0; i < axes.size() && i < operands.size(); ++i) {
    if (axes[i].type == op::Type::state) {
      marked[operands[i].index()] = true;
    }
  }
}

bool is_update(const Task& task) { return std::holds_alternative<Update>(task.action); }

Task compute(op::Op op, DeviceId device, plan::Labels labels, std::vector<BufferId> reads, std::vector<BufferId> writes) {
  return {.action = Compute{op},
          .device = device,
          .labels = labels,
          .reads = std::move(reads),
          .writes = std::move(writes),
          .after = {}};
}

/// The op of a task that computes a loss; null for any other.
op::Op* loss_of(Task& task) {
  auto* computes = std::get_if<Compute>(&task.action);
  return computes != nullptr && op::is_loss(computes->op) ? &computes->op : nullptr;
}

/// The buffers of one device of a step with loss scaling, and its tasks' labels.
struct Scaler {
  BufferId state;
  BufferId flag;
  std::vector<BufferId> gradients;
  plan::Labels labels{.phase = Phase::update};  // as its updates have, but for the block
};

}  // namespace

plan::Draft narrow_values(plan::Draft draft, const Step& step) {
  std::vector<bool> wide(draft.buffers.size(), false);
  for (const Task& task : draft.tasks) {
    if (const auto* computes = std::get_if<Compute>(&task.action)) {
      const op::Signature& signature = op::signature(computes->op);
      mark_states(signature.reads, task.reads, wide);
      mark_states(signature.writes, task.writes, wide);
    }
  }
  for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
    Buffer& buffer = draft.buffers[b];
    if (buffer.dtype == DType::f32 && !is_master(buffer) && !wide[b] && !is_wide(draft.graph, buffer) &&
        !(step.wide_gradients && is_parameter_gradient(buffer))) {
      buffer.dtype = dtype_of(step.precision);
    }
  }
  return draft;
}

plan::Draft cast_parameters(plan::Draft draft, DType type) {
  std::map<BufferId, BufferId> copies;
  std::vector<std::vector<Task>> insertions(draft.tasks.size() + 1);
  for (Task& task : draft.tasks) {
    if (is_update(task)) {
      continue;
    }
    for (BufferId& id : task.reads) {
      if (draft[id].role != Role::parameter || !is_master(draft[id])) {
        continue;
      }
      const auto [copy, added] = copies.try_emplace(id);
      if (added) {
        Buffer working = draft[id];
        working.dtype = type;
        working.persistent = false;
        working.label = fmt::format("{} in {}", working.label, to_text(type));
        copy->second = draft.add(std::move(working));
        insertions[0].push_back(compute(op::Cast{}, draft[id].device,
                                        {.phase = Phase::forward, .block = task.labels.block, .stage = task.labels.stage}, {id},
                                        {copy->second}));
      }
      id = copy->second;
    }
  }
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(insertions));
  return draft;
}

plan::Draft scale_loss(plan::Draft draft, const LossScale& settings) {
  std::map<DeviceId, Scaler> scalers;
  const auto scaler_of = [&](DeviceId device) -> Scaler& {
    Scaler& scaler = scalers[device];
    if (!scaler.state.valid()) {
      scaler.state = draft.add({.device = device,
                                .role = Role::optimizer_state,
                                .persistent = true,
                                .shape = Shape{op::ScaleState::elements},
                                .content = plan::LossScaler{settings.initial},
                                .label = "loss scale"});
      scaler.flag = draft.add({.device = device,
                               .role = Role::communication,
                               .shape = Shape{1},
                               .content = plan::NonFiniteCount{},
                               .label = "gradients that are not finite"});
    }
    return scaler;
  };
  std::size_t first_update = draft.tasks.size();
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    if (op::Op* loss = loss_of(task)) {
      *loss = op::with_loss_scale(*loss);
      task.reads.push_back(scaler_of(task.device).state);
    } else if (is_update(task)) {
      first_update = std::min(first_update, i);
      Scaler& scaler = scaler_of(task.device);
      scaler.labels = {.phase = Phase::update, .stage = task.labels.stage};
      scaler.gradients.insert(scaler.gradients.end(), task.reads.begin(),
                              task.reads.begin() + static_cast<std::ptrdiff_t>(plan::updated_count(task)));
      std::get<Update>(task.action).scaled = true;
      task.reads.insert(task.reads.end(), {scaler.flag, scaler.state});
    }
  }
  for (std::size_t i = first_update; i < draft.tasks.size(); ++i) {
    for (const BufferId id : draft.tasks[i].writes) {
      check(draft[id].role != Role::gradient, "task {} writes a gradient after the first update", i);
    }
  }

  std::vector<std::vector<Task>> insertions(draft.tasks.size() + 1);
  for (const auto& [device, scaler] : scalers) {
    insertions[first_update].push_back(compute(op::CheckFinite{}, device, scaler.labels, scaler.gradients, {scaler.flag}));
  }
  if (scalers.size() > 1) {  // one that overflowed makes all skip the step
    const MeetingId meeting = draft.new_meeting();
    std::uint32_t rank = 0;
    for (const auto& [device, scaler] : scalers) {
      insertions[first_update].push_back(
          {.action = plan::Collective{plan::Move::all_reduce, meeting, rank++, static_cast<std::uint32_t>(scalers.size())},
           .device = device,
           .lane = plan::Lane::communication,
           .labels = scaler.labels,
           .reads = {scaler.flag},
           .writes = {scaler.flag},
           .after = {}});
    }
  }
  for (const auto& [device, scaler] : scalers) {
    insertions.back().push_back(compute(op::AdjustScale{settings.dynamic ? settings.growth_interval : 0}, device, scaler.labels,
                                        {scaler.flag, scaler.state}, {scaler.state}));
  }
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(insertions));
  return draft;
}

}  // namespace baton::strategy
