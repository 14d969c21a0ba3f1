#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "baton/base/divide.h"

namespace baton::plan {

/// The exchange between the members of a meeting. A transfer is a `copy` from rank 0, its sender, to rank 1; the others are
/// collectives.
enum class Move : std::uint8_t { copy, all_reduce, broadcast, reduce, reduce_scatter, all_gather };

/// The facts about a move. Each element that crosses has one member that owns it; all that a move costs follows from these
/// facts.
struct MoveRule {
  enum class Owner : std::uint8_t {
    root,   // rank 0 owns everything
    share,  // the row of all buffers is divided over the members
    piece   // each buffer is divided over the members, and its owner holds its piece in a buffer of its own
  };
  Move move;
  std::string_view name;
  bool sums;     // all members bring the element, and its owner adds them up in order of rank
  bool spreads;  // the owner gives the element to all other members
  Owner owner;
};

/// The table that all code reads: `verify`, work, costs, the simulator's links, transports and `bench collectives`.
constexpr std::array<MoveRule, 6> move_rules{{
    {Move::copy, "send_receive", false, true, MoveRule::Owner::root},
    {Move::all_reduce, "all_reduce", true, true, MoveRule::Owner::share},
    {Move::broadcast, "broadcast", false, true, MoveRule::Owner::root},
    {Move::reduce, "reduce", true, false, MoveRule::Owner::root},
    {Move::reduce_scatter, "reduce_scatter", true, false, MoveRule::Owner::piece},
    {Move::all_gather, "all_gather", false, true, MoveRule::Owner::piece},
}};
constexpr const MoveRule& rule_of(Move move) { return move_rules[static_cast<std::size_t>(move)]; }
constexpr std::string_view to_text(Move move) { return rule_of(move).name; }
static_assert([] {
  for (std::size_t i = 0; i < move_rules.size(); ++i) {
    if (move_rules[i].move != static_cast<Move>(i)) {
      return false;
    }
  }
  return true;
}());

/// The number of times that the payload goes around a ring of the members: once to be summed, once to be spread. 0:
/// everything passes through the root's port instead.
constexpr std::int64_t ring_turns(Move move) {
  const MoveRule& rule = rule_of(move);
  return rule.owner == MoveRule::Owner::root ? 0 : (rule.sums ? 1 : 0) + (rule.spreads ? 1 : 0);
}

/// Elements that one member owns of a payload of this many. A rank's pieces of several buffers are counted buffer by buffer.
constexpr std::int64_t owned(Move move, std::int64_t elements, std::int64_t rank, std::int64_t size) {
  return rule_of(move).owner == MoveRule::Owner::root ? (rank == 0 ? elements : 0)
                                                      : divide(elements, size, rank, Remainder::spread).size();
}

/// The amounts that one member of `size` sends and receives, in units of `own` (elements or bytes that it owns) and `whole`
/// (of the payload).
struct Moved {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};
constexpr Moved moved_by(Move move, std::int64_t own, std::int64_t whole, std::int64_t size) {
  const MoveRule& rule = rule_of(move);
  const std::int64_t to_all = own * (size - 1);
  const std::int64_t of_others = whole - own;
  return {(rule.sums ? of_others : 0) + (rule.spreads ? to_all : 0), (rule.sums ? to_all : 0) + (rule.spreads ? of_others : 0)};
}

/// The factor from the bandwidth of a move (payload over time) to what a link carries under any algorithm, as in nccl-tests.
constexpr double bus_factor(Move move, std::int64_t size) {
  const auto n = static_cast<double>(size);
  return ring_turns(move) == 0 ? 1 : static_cast<double>(ring_turns(move)) * (n - 1) / n;
}

}  // namespace baton::plan
