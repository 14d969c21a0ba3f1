#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "baton/plan/split/ledger.h"

namespace baton::plan {

/// The rules of transfers and collectives: members hold the same part of the same tensor, pieces are those that fall to them, and
/// no term of a sum comes twice.
class MeetingRules {
 public:
  MeetingRules(Ledger& ledger, std::int64_t alike_parts) : ledger_(ledger), alike_parts_(alike_parts) {}

  void judge(std::span<const TaskId> members);

 private:
  bool find_parts();
  bool add_further_parts(Terms& sum);
  std::size_t size() const;
  bool alike(std::size_t slot);
  bool sum_of(std::size_t slot, State& sum);
  bool check_terms(std::size_t slot);
  void meet_whole(const MoveRule& rule, std::size_t slot, double rate);
  void apply(TaskId id, std::size_t slot, const State& sum, double rate);
  std::optional<Range> run_of(BufferId piece, BufferId whole) const;
  void meet_pieces(const MoveRule& rule, std::size_t slot, bool accumulate);
  bool take_piece(TaskId id, BufferId piece, BufferId all, Range own);
  void put_piece(TaskId id, BufferId piece, const State& sum, bool adds);
  void gather_terms(std::size_t slot);
  BufferId brought(std::size_t rank, std::size_t slot) const { return payload(ledger_.plan()[members_[rank]])[slot]; }

  Ledger& ledger_;
  std::int64_t alike_parts_;     // Limits::alike_parts
  std::vector<TaskId> members_;  // the members of the meeting that is checked, by rank
  /// If the meeting is between parts of which the plan has two of more: the ranks of a first part and of the second next to it.
  std::vector<std::pair<std::size_t, std::size_t>> parts_;
  std::vector<std::pair<std::size_t, std::size_t>> on_device_;  // device and rank of the members
  std::vector<BufferId> summands_;                              // by rank
  std::vector<std::size_t> next_;                               // the next of each rank's pieces
};

}  // namespace baton::plan
