#include "baton/cost/cost_model.h"

namespace baton::cost {

Bytes carried(const plan::Plan& plan, TaskId id) {
  const plan::Task& task = plan[id];
  if (!plan::meeting_of(task).valid()) {
    return Bytes(0);
  }
  const plan::MoveRule& rule = plan::rule_of(plan::move_of(task));
  const auto* collective = std::get_if<plan::Collective>(&task.action);
  const std::int64_t n = collective == nullptr ? 2 : collective->size;
  const Bytes size = plan::bytes_of(plan, plan::payload(task));
  if (rule.owner == plan::MoveRule::Owner::share) {
    return size * 2;  // it reads its share of every member's, and writes as much
  }
  const bool root = plan::rank_of(task) == 0;
  if (rule.owner == plan::MoveRule::Owner::root && rule.spreads) {
    return root ? Bytes(0) : size * 2;  // each receiver copies it
  }
  const Bytes own = rule.owner == plan::MoveRule::Owner::piece ? plan::bytes_of(plan, plan::pieces(task)) : root ? size : Bytes(0);
  return own * (n + 1 + (collective->accumulate ? 1 : 0));
}

}  // namespace baton::cost
