#pragma once

#include "baton/plan/split/indices.h"
#include "baton/plan/split/ledger.h"

namespace baton::plan {

/// The rules of ops: a task is one of the derivations that the graph allows, its operands' indices agree with the op's
/// signature, and what it writes are the terms of the sum that it has.
class ComputeRules {
 public:
  explicit ComputeRules(Ledger& ledger) : ledger_(ledger) {}

  void judge(TaskId id, const Task& task, const op::Op& op);

 private:
  const Derivation* find(const Task& task, const op::Op& op, std::span<const BufferId> reads, bool steps) const;
  bool bind(TaskId id, const Task& task, const op::Signature& signature);
  bool check_numbers(TaskId id, const op::Op& op, const op::Signature& signature);
  bool check_groups(TaskId id, const op::Op& op);
  void write(TaskId id, const Task& task, const op::Op& op, const op::Signature& signature, const Derivation& derivation,
             bool steps);
  void put(TaskId id, BufferId buffer, const LogicalTensor& made, const TermBox& box, bool all, bool adds, bool steps);
  void put_sum(TaskId id, const Task& task, const TermBox& box);
  void copy(TaskId id, const Task& task, BufferId from, BufferId to, bool steps);
  void track(TaskId id, BufferId buffer);
  TermBox samples() const;
  void add_up(TaskId id, const Task& task, std::span<const BufferId> reads, BufferId target);
  bool add_term(TaskId id, const Task& task, BufferId buffer, BufferId target, State& sum);
  void not_the_models(TaskId id, const Task& task, std::span<const BufferId> reads);

  Ledger& ledger_;
  Indices indices_;  // the indices of the task that is checked
};

}  // namespace baton::plan
