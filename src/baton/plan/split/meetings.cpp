#include "baton/plan/split/meetings.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Kind = Thing::Kind;

}  // namespace

void MeetingLaw::judge(std::span<const TaskId> members) {
  const Plan& plan = ledger_.plan();
  members_.assign(members.size(), TaskId());
  for (const TaskId id : members) {
    members_[rank_of(plan[id])] = id;
  }
  next_.assign(members.size(), 0);
  const Task& first = plan[members_[0]];
  const auto* collective = std::get_if<Collective>(&first.action);
  const MoveRule& rule = rule_of(move_of(first));
  const std::size_t slots = payload(first).size();
  for (std::size_t slot = 0; slot < slots && !ledger_.broken(); ++slot) {
    if (!alike(slot)) {
      return;
    }
    if (rule.owner != MoveRule::Owner::piece) {
      meet_whole(rule, slot, collective == nullptr ? 0 : collective->sgd_rate);
    } else if (ledger_.held(brought(0, slot)).thing.kind == Kind::loss_terms) {
      gather_terms(slot);
    } else {
      meet_pieces(rule, slot, collective->accumulate);
    }
  }
}

/// All members bring, or take, the same part of the same thing.
bool MeetingLaw::alike(std::size_t slot) {
  const BufferId first = brought(0, slot);
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const BufferId own = brought(rank, slot);
    if (!(ledger_.held(own) == ledger_.held(first))) {
      ledger_.breach(Rule::value, {members_[0], members_[rank]},
                     fmt::format("{} brings {}, but {} has {}", ledger_.name(members_[0]), ledger_.name(first),
                                 ledger_.name(members_[rank]), ledger_.name(own)));
      return false;
    }
  }
  return true;
}

/// The sum of what the members bring; false: something counts twice.
bool MeetingLaw::sum_of(std::size_t slot, State& sum) {
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId buffer = brought(rank, slot);
    const State& state = ledger_.state(buffer);
    if (state.updated || state.complete || !sum.terms.add(state.terms)) {
      ledger_.breach(Rule::sum, {members_[0], members_[rank]},
                     fmt::format("{} adds up {} although {}", ledger_.name(members_[rank]), ledger_.name(buffer),
                                 state.complete ? "the sum is complete" : "another member brings the same terms"));
      return false;
    }
  }
  sum.written = true;
  sum.complete = false;
  Ledger::settle(sum, ledger_.meaning().uses(ledger_.held(brought(0, slot)).thing));
  return check_terms(slot);
}

/// Buffers that say which term of a sum they hold say it as the collective takes them.
bool MeetingLaw::check_terms(std::size_t slot) {
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId buffer = brought(rank, slot);
    const auto* part = std::get_if<ValuePart>(&ledger_.plan()[buffer].content);
    if (part != nullptr && part->terms > 1 && (part->terms != members_.size() || part->term != rank)) {
      ledger_.breach(Rule::sum, {members_[rank]},
                     fmt::format("{} brings {} as term {} of {}, which is said to be term {} of {}", ledger_.name(members_[rank]),
                                 ledger_.name(buffer), rank, members_.size(), part->term, part->terms));
      return false;
    }
  }
  return true;
}

void MeetingLaw::meet_whole(const MoveRule& rule, std::size_t slot, double rate) {
  State result;
  if (!rule.sums) {
    result = ledger_.state(brought(0, slot));
  } else if (!sum_of(slot, result)) {
    return;
  }
  for (std::size_t rank = 0; rank < members_.size() && !ledger_.broken(); ++rank) {
    if (rate > 0) {
      apply(members_[rank], slot, result, rate);
    } else if (rule.spreads || rank == 0) {
      ledger_.state(brought(rank, slot)) = result;
    }
  }
}

/// A sum that is applied to a parameter and not kept.
void MeetingLaw::apply(TaskId id, std::size_t slot, const State& sum, double rate) {
  const Task& task = ledger_.plan()[id];
  const BufferId parameter = task.writes[slot];
  Held wanted = ledger_.held(task.reads[slot]);
  const bool gradient = wanted.thing.kind == Kind::parameter_gradient;
  wanted.thing.kind = Kind::parameter;
  if (!gradient || !(ledger_.held(parameter) == wanted)) {
    return ledger_.breach(
        Rule::value, {id},
        fmt::format("{} updates {} by {}", ledger_.name(id), ledger_.name(parameter), ledger_.name(task.reads[slot])));
  }
  if (!sum.complete) {
    return ledger_.breach(
        Rule::update, {id},
        fmt::format("{} updates {} by some terms of its gradient only", ledger_.name(id), ledger_.name(parameter)));
  }
  if (ledger_.update(id, parameter)) {
    ledger_.check_rate(id, rate);
  }
}

/// Which elements of a whole buffer a piece is, as they lie in memory; none: it is no run of them.
std::optional<Range> MeetingLaw::run_of(BufferId piece, BufferId whole) const {
  const Held& part = ledger_.held(piece);
  const Held& all = ledger_.held(whole);
  if (part.piece.size() > 0 || all.piece.size() > 0) {
    const bool same = std::equal(part.at.begin(), part.at.end(), all.at.begin(), all.at.end());
    return same && all.piece.size() == 0 ? std::optional(part.piece) : std::nullopt;
  }
  std::int64_t stride = ledger_.plan()[whole].shape.elements();
  Range run{0, stride};
  bool found = false;
  for (std::size_t d = 0; d < all.at.size(); ++d) {
    stride /= all.at[d].size();
    if (!(part.at[d] == all.at[d])) {
      if (found) {
        return std::nullopt;
      }
      found = true;
      run = {(part.at[d].begin - all.at[d].begin) * stride, (part.at[d].end - all.at[d].begin) * stride};
    } else if (!found && all.at[d].size() > 1 && d + 1 < all.at.size() &&
               !std::equal(part.at.begin() + static_cast<std::ptrdiff_t>(d), part.at.end(),
                           all.at.begin() + static_cast<std::ptrdiff_t>(d))) {
      return std::nullopt;  // what is divided lies behind a dimension of several indices
    }
  }
  return run;
}

void MeetingLaw::meet_pieces(const MoveRule& rule, std::size_t slot, bool accumulate) {
  State sum;
  if (rule.sums && !sum_of(slot, sum)) {
    return;
  }
  for (std::size_t rank = 0; rank < members_.size() && !ledger_.broken(); ++rank) {
    const Task& task = ledger_.plan()[members_[rank]];
    const BufferId all = brought(rank, slot);
    const Range own = piece_of(ledger_.plan()[all].shape.elements(), std::get<Collective>(task.action));
    if (own.size() > 0) {
      const BufferId piece = pieces(task)[next_[rank]++];
      if (!take_piece(members_[rank], piece, all, own)) {
        return;
      }
      if (rule.sums) {
        put_piece(members_[rank], piece, sum, accumulate);
      } else if (!ledger_.readable(members_[rank], piece)) {
        return;
      }
    }
    if (!rule.sums) {
      ledger_.state(all) = {.written = true};
    }
  }
}

/// Whether a piece is of what the others have, and of the elements that fall to its member.
bool MeetingLaw::take_piece(TaskId id, BufferId piece, BufferId all, Range own) {
  if (ledger_.held(piece).thing != ledger_.held(all).thing || run_of(piece, all) != own) {
    ledger_.breach(Rule::value, {id},
                   fmt::format("{} takes {} for elements {}:{} of {}", ledger_.name(id), ledger_.name(piece), own.begin, own.end,
                               ledger_.name(all)));
  }
  return !ledger_.broken();
}

void MeetingLaw::put_piece(TaskId id, BufferId piece, const State& sum, bool adds) {
  State& state = ledger_.state(piece);
  if (!adds) {
    state = sum;
    return;
  }
  if (state.complete || sum.complete || !state.terms.add(sum.terms)) {
    return ledger_.breach(Rule::sum, {id},
                          fmt::format("{} adds to {} what it holds already", ledger_.name(id), ledger_.name(piece)));
  }
  Ledger::settle(state, ledger_.meaning().uses(ledger_.held(piece).thing));
}

/// Each member brings the terms that its part of the scores contributes to a loss; together they must be those of all scores.
void MeetingLaw::gather_terms(std::size_t slot) {
  State all;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId piece = pieces(ledger_.plan()[members_[rank]])[next_[rank]++];
    Held wanted = ledger_.held(brought(rank, slot));
    wanted.parts = 1;
    if (!(ledger_.held(piece) == wanted)) {
      return ledger_.breach(Rule::value, {members_[rank]},
                            fmt::format("{} takes {} for a part of {}", ledger_.name(members_[rank]), ledger_.name(piece),
                                        ledger_.name(brought(rank, slot))));
    }
    const State& state = ledger_.state(piece);
    if (state.complete || !all.terms.add(state.terms)) {
      return ledger_.breach(
          Rule::sum, {members_[0], members_[rank]},
          fmt::format("{} brings {}, which are in it already", ledger_.name(members_[rank]), ledger_.name(piece)));
    }
  }
  all.written = true;
  all.complete = false;
  Ledger::settle(all, 1);
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    ledger_.state(brought(rank, slot)) = all;
  }
}

}  // namespace baton::plan
