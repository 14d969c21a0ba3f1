#pragma once

#include <optional>

#include "baton/plan/split/ledger.h"

namespace baton::plan {

/// The law of transfers and collectives: members hold the same of the same thing, pieces are those that fall to them, and no term
/// of a sum comes twice.
class MeetingLaw {
 public:
  explicit MeetingLaw(Ledger& ledger) : ledger_(ledger) {}

  void judge(std::span<const TaskId> members);

 private:
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
  std::vector<TaskId> members_;    // of the meeting that is judged, by rank
  std::vector<std::size_t> next_;  // of a rank's pieces
};

}  // namespace baton::plan
