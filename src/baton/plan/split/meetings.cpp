#include "baton/plan/split/meetings.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

}  // namespace

void MeetingRules::judge(std::span<const TaskId> members) {
  const Plan& plan = ledger_.plan();
  members_.assign(members.size(), TaskId());
  for (const TaskId id : members) {
    members_[rank_of(plan[id])] = id;
  }
  next_.assign(members.size(), 0);
  if (!find_parts()) {
    return;
  }
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
    } else if (ledger_.held(brought(0, slot)).tensor.kind == Tensor::loss_terms) {
      gather_terms(slot);
    } else {
      meet_pieces(rule, slot, collective->accumulate);
    }
  }
}

/// Finds the members that are neighbouring parts; returns false if one of two is missing.
bool MeetingRules::find_parts() {
  parts_.clear();
  if (alike_parts_ <= 2) {
    return true;
  }
  on_device_.clear();
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    on_device_.emplace_back(ledger_.plan()[members_[rank]].device.index(), rank);
  }
  std::sort(on_device_.begin(), on_device_.end());
  for (std::size_t i = 0; i + 1 < on_device_.size(); ++i) {
    if (on_device_[i].first % 2 == 0 && on_device_[i + 1].first == on_device_[i].first + 1) {
      parts_.emplace_back(on_device_[i].second, on_device_[i + 1].second);
    }
  }
  if (!parts_.empty() && 2 * parts_.size() != members_.size()) {
    ledger_.breach(Rule::value, {members_[0]},
                   fmt::format("{} has some parts of a divided tensor only", ledger_.name(members_[0])));
  }
  return !ledger_.broken();
}

/// The number of members of the meeting with all parts.
std::size_t MeetingRules::size() const {
  return parts_.empty() ? members_.size() : parts_.size() * static_cast<std::size_t>(alike_parts_);
}

/// Adds the terms of parts that the plan does not have; returns false if they do not continue the first two, or count twice.
bool MeetingRules::add_further_parts(Terms& sum) {
  for (const auto& [first, second] : parts_) {
    for (std::int64_t k = 2; k < alike_parts_; ++k) {
      const std::optional<Terms> further = ledger_.state(summands_[first])
                                               .terms.continued(ledger_.state(summands_[second]).terms, k);
      if (!further || !sum.add(*further)) {
        ledger_.breach(Rule::sum, {members_[first], members_[second]},
                       fmt::format("{} and {} do not begin a row of {} parts", ledger_.name(summands_[first]),
                                   ledger_.name(summands_[second]), alike_parts_));
        return false;
      }
    }
  }
  return true;
}

/// All members bring, or take, the same part of the same tensor.
bool MeetingRules::alike(std::size_t slot) {
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

/// The sum of the members' contributions; returns false if some term counts twice.
bool MeetingRules::sum_of(std::size_t slot, State& sum) {
  summands_.clear();
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId buffer = brought(rank, slot);
    summands_.push_back(buffer);
    const State& state = ledger_.state(buffer);
    if (state.updated || state.complete || !sum.terms.add(state.terms)) {
      ledger_.breach(Rule::sum, {members_[0], members_[rank]},
                     fmt::format("{} adds up {} although {}", ledger_.name(members_[rank]), ledger_.name(buffer),
                                 state.complete ? "the sum is complete" : "another member brings the same terms"));
      return false;
    }
  }
  // Counts of tensors that are not finite are added up by device, whatever the devices hold.
  if (!ledger_.held(summands_[0]).at.empty() && !add_further_parts(sum.terms)) {
    return false;
  }
  sum.written = true;
  sum.complete = false;
  Ledger::settle(sum, ledger_.derivations().uses(ledger_.held(brought(0, slot)).tensor));
  return check_terms(slot);
}

/// Buffers that say which term of a sum they hold say it as the collective takes them.
bool MeetingRules::check_terms(std::size_t slot) {
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId buffer = brought(rank, slot);
    const auto* part = std::get_if<ValuePart>(&ledger_.plan()[buffer].content);
    if (part != nullptr && part->terms > 1 && (part->terms != size() || part->term != rank)) {
      ledger_.breach(Rule::sum, {members_[rank]},
                     fmt::format("{} brings {} as term {} of {}, which is said to be term {} of {}", ledger_.name(members_[rank]),
                                 ledger_.name(buffer), rank, size(), part->term, part->terms));
      return false;
    }
  }
  return true;
}

void MeetingRules::meet_whole(const MoveRule& rule, std::size_t slot, double rate) {
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
void MeetingRules::apply(TaskId id, std::size_t slot, const State& sum, double rate) {
  const Task& task = ledger_.plan()[id];
  const BufferId parameter = task.writes[slot];
  DeclaredContent wanted = ledger_.held(task.reads[slot]);
  const bool gradient = wanted.tensor.kind == Tensor::parameter_gradient;
  wanted.tensor.kind = Tensor::parameter;
  if (!gradient || !(ledger_.held(parameter) == wanted)) {
    return ledger_.breach(
        Rule::value, {id},
        fmt::format("{} updates {} by {}", ledger_.name(id), ledger_.name(parameter), ledger_.name(task.reads[slot])));
  }
  if (!sum.complete) {
    return ledger_.breach(Rule::update, {id},
                          fmt::format("{} updates {} with an incomplete gradient", ledger_.name(id), ledger_.name(parameter)));
  }
  if (ledger_.update(id, parameter)) {
    ledger_.check_rate(id, rate);
  }
}

/// The range of a whole buffer's elements in memory that are a piece's; nullopt if they are not contiguous.
std::optional<Range> MeetingRules::run_of(BufferId piece, BufferId whole) const {
  const DeclaredContent& part = ledger_.held(piece);
  const DeclaredContent& all = ledger_.held(whole);
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
      return std::nullopt;  // the divided dimension comes after one of several indices
    }
  }
  return run;
}

void MeetingRules::meet_pieces(const MoveRule& rule, std::size_t slot, bool accumulate) {
  State sum;
  if (rule.sums && !sum_of(slot, sum)) {
    return;
  }
  for (std::size_t rank = 0; rank < members_.size() && !ledger_.broken(); ++rank) {
    const Task& task = ledger_.plan()[members_[rank]];
    const BufferId all = brought(rank, slot);
    const Range own = piece_of(ledger_.plan()[all].shape.elements(), std::get<Collective>(task.action));
    if (!parts_.empty() && own.size() * static_cast<std::int64_t>(size()) != ledger_.plan()[all].shape.elements()) {
      return ledger_.breach(
          Rule::value, {members_[rank]},
          fmt::format("{} does not divide {} into {} equal pieces", ledger_.name(members_[rank]), ledger_.name(all), size()));
    }
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

/// True if a piece is of the same tensor as the others', and has the elements of its member.
bool MeetingRules::take_piece(TaskId id, BufferId piece, BufferId all, Range own) {
  if (ledger_.held(piece).tensor != ledger_.held(all).tensor || run_of(piece, all) != own) {
    ledger_.breach(Rule::value, {id},
                   fmt::format("{} takes {} for elements {}:{} of {}", ledger_.name(id), ledger_.name(piece), own.begin, own.end,
                               ledger_.name(all)));
  }
  return !ledger_.broken();
}

void MeetingRules::put_piece(TaskId id, BufferId piece, const State& sum, bool adds) {
  State& state = ledger_.state(piece);
  if (!adds) {
    state = sum;
    return;
  }
  if (state.complete || sum.complete || !state.terms.add(sum.terms)) {
    return ledger_.breach(Rule::sum, {id},
                          fmt::format("{} adds to {} a term that it holds already", ledger_.name(id), ledger_.name(piece)));
  }
  Ledger::settle(state, ledger_.derivations().uses(ledger_.held(piece).tensor));
}

/// Each member brings the terms that its part of the scores contributes to a loss; together they must be those of all scores.
void MeetingRules::gather_terms(std::size_t slot) {
  State all;
  summands_.clear();
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const BufferId piece = pieces(ledger_.plan()[members_[rank]])[next_[rank]++];
    summands_.push_back(piece);
    DeclaredContent wanted = ledger_.held(brought(rank, slot));
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
  if (!add_further_parts(all.terms)) {
    return;
  }
  all.written = true;
  all.complete = false;
  Ledger::settle(all, 1);
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    ledger_.state(brought(rank, slot)) = all;
  }
}

}  // namespace baton::plan
