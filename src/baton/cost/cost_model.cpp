#include "baton/cost/cost_model.h"

namespace baton::cost {

Bytes carried(const plan::Plan& plan, TaskId id) {
  const plan::Task& task = plan[id];
  const Bytes size = plan::bytes_of(plan, plan::payload(task));
  if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
    return transfer->end == plan::Transfer::End::send ? Bytes(0) : size * 2;
  }
  const auto* collective = std::get_if<plan::Collective>(&task.action);
  if (collective == nullptr) {
    return Bytes(0);
  }
  switch (collective->kind) {
    case plan::Collective::Kind::all_reduce:
      return size * 2;
    case plan::Collective::Kind::broadcast:
      return collective->rank == 0 ? Bytes(0) : size * 2;
    case plan::Collective::Kind::reduce:
      return collective->rank == 0 ? size * (collective->size + 1) : Bytes(0);
    case plan::Collective::Kind::reduce_scatter:
      return plan::bytes_of(plan, plan::pieces(task)) * (collective->size + (collective->accumulate ? 2 : 1));
    case plan::Collective::Kind::all_gather:
      return plan::bytes_of(plan, plan::pieces(task)) * (collective->size + 1);
  }
  return Bytes(0);
}

}  // namespace baton::cost
