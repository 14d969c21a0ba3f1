#include "baton/plan/split/updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

}  // namespace

void UpdateRules::judge(TaskId id, const Task& task, const Update& update) {
  const std::optional<op::Optimizer>& optimizer = ledger_.graph().optimizer;
  if (optimizer && update.optimizer != *optimizer) {
    return ledger_.breach(Rule::update, {id}, fmt::format("{} takes another step than the plan's optimizer", ledger_.name(id)));
  }
  if (update.scaled != ledger_.scaled()) {
    return ledger_.breach(
        Rule::update, {id},
        fmt::format("{} {} the loss scale, unlike the losses", ledger_.name(id), update.scaled ? "takes back" : "keeps"));
  }
  const std::size_t slots = op::state_slots(update.optimizer);
  const std::size_t n = updated_count(task);
  const std::size_t stepped = n * (1 + slots);
  for (std::size_t i = 0; i < task.writes.size(); ++i) {
    const bool parameter = i < n || i >= stepped;  // or a copy of it
    const std::size_t p = i < n ? i : i >= stepped ? i - stepped : (i - n) / slots;
    const BufferId gradient = task.reads[p];
    DeclaredContent wanted = ledger_.held(gradient);
    const bool is_gradient = wanted.tensor.kind == Tensor::parameter_gradient;
    wanted.tensor.kind = parameter ? Tensor::parameter : Tensor::state;
    wanted.tensor.slot = parameter ? 0 : static_cast<std::uint32_t>((i - n) % slots);
    if (!is_gradient || !(ledger_.held(task.writes[i]) == wanted)) {
      return ledger_.breach(
          Rule::value, {id},
          fmt::format("{} updates {} by {}", ledger_.name(id), ledger_.name(task.writes[i]), ledger_.name(gradient)));
    }
    if (!ledger_.readable(id, gradient) || !ledger_.update(id, task.writes[i])) {
      return;
    }
    const std::vector<BufferId>& counted = counted_[task.device];
    if (update.scaled && !std::binary_search(counted.begin(), counted.end(), gradient)) {
      return ledger_.breach(
          Rule::update, {id},
          fmt::format("{} reads {}, which no check_finite task has checked", ledger_.name(id), ledger_.name(gradient)));
    }
  }
  if (op::clip_of(update.optimizer) > 0 && !norm_.check_whole(id, task.reads[task.reads.size() - (update.scaled ? 3 : 1)])) {
    return;
  }
  if (update.scaled && counts_all(id, task.reads[task.reads.size() - 2]) &&
      (ledger_.held(task.reads.back()).tensor.kind != Tensor::scaler || ledger_.state(task.reads.back()).updated)) {
    ledger_.breach(Rule::update, {id}, fmt::format("{} does not read this step's loss scale", ledger_.name(id)));
  }
}

void UpdateRules::judge_count(TaskId id, const Task& task) {
  for (const BufferId buffer : task.reads) {
    if (!ledger_.readable(id, buffer)) {
      return;
    }
  }
  std::vector<BufferId>& counted = counted_[task.device];
  counted = task.reads;
  std::sort(counted.begin(), counted.end());
  const std::vector<DeviceId>& devices = ledger_.scalers();
  const auto at = std::find(devices.begin(), devices.end(), task.device) - devices.begin();
  State& state = ledger_.state(task.writes[0]);
  state = {.written = true, .complete = false};
  TermBox own;
  own.add({{at, at + 1}, static_cast<std::int64_t>(devices.size())});
  state.terms = Terms(own);
  Ledger::settle(state, 1);
}

/// True if the count of gradients that are not finite is that of all devices.
bool UpdateRules::counts_all(TaskId id, BufferId buffer) {
  if (ledger_.held(buffer).tensor.kind != Tensor::non_finite || !ledger_.state(buffer).complete) {
    ledger_.breach(Rule::sum, {id}, fmt::format("{} does not read the count of gradients of all devices", ledger_.name(id)));
  }
  return !ledger_.broken();
}

void UpdateRules::judge_adjustment(TaskId id, const Task& task) {
  State& state = ledger_.state(task.writes[0]);
  if (counts_all(id, task.reads[0]) && std::exchange(state.updated, true)) {
    ledger_.breach(Rule::update, {id}, fmt::format("{} adjusts the loss scale a second time", ledger_.name(id)));
  }
}

}  // namespace baton::plan
