#include "baton/exec/transport/dealing.h"

#include <algorithm>

#include "baton/base/error.h"

namespace baton::exec {
namespace {

using plan::Collective;

/// The share of `rank` in the elements of all buffers in a row: if a move only spreads them, the receivers copy them.
plan::Piece range_of(const plan::MoveRule& rule, std::int64_t total, std::int64_t rank, std::int64_t members) {
  if (rule.owner == plan::MoveRule::Owner::share) {
    return divide(total, members, rank, Remainder::spread);
  }
  return {0, (rank == 0) == rule.sums ? total : 0};
}

void cut(Share& share, std::size_t buffer, std::int64_t begin, std::int64_t end, std::int64_t run_elements) {
  for (std::int64_t at = begin; at < end; at += run_elements) {
    share.runs.push_back({buffer, at, std::min(run_elements, end - at)});
  }
}

/// To each member its own pieces.
void cut_pieces(Share& share, std::size_t buffer, plan::Piece range, std::size_t piece, std::int64_t run_elements) {
  for (std::int64_t at = range.begin; at < range.end; at += run_elements) {
    share.runs.push_back({buffer, at, std::min(run_elements, range.end - at), piece, at - range.begin});
  }
}

}  // namespace

std::vector<Share> deal(const plan::Plan& plan, MeetingId meeting, std::int64_t run_elements) {
  const std::size_t members = plan.members(meeting).size();
  const plan::Task& first = plan[plan.members(meeting)[0]];
  const plan::MoveRule& rule = plan::rule_of(plan::move_of(first));
  const auto* collective = std::get_if<Collective>(&first.action);
  const std::int64_t row = collective == nullptr ? 1 : collective->row;
  const std::span<const BufferId> buffers = plan::payload(first);
  const DType type = plan[buffers[0]].dtype;
  std::int64_t total = 0;
  for (const BufferId id : buffers) {
    total += plan[id].shape.elements();
    check(plan[id].dtype == type, "buffer {} of a collective has another type than its first buffer", id.value);
  }
  std::vector<Share> shares(members);
  for (std::size_t rank = 0; rank < members; ++rank) {
    Share& share = shares[rank];
    std::size_t piece = 0;
    std::int64_t start = 0;  // where the buffer begins in the row of all buffers
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const std::int64_t extent = plan[buffers[b]].shape.elements();
      if (rule.owner == plan::MoveRule::Owner::piece) {
        const plan::Piece range = plan::piece_of(extent, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(members),
                                                 row);
        cut_pieces(share, b, range, piece, run_elements);
        piece += range.size() > 0 ? 1 : 0;
      } else {
        const plan::Piece range = range_of(rule, total, static_cast<std::int64_t>(rank), static_cast<std::int64_t>(members));
        cut(share, b, std::max(range.begin, start) - start, std::min(range.end, start + extent) - start, run_elements);
      }
      start += extent;
    }
  }
  return shares;
}

MemberMemory::MemberMemory(const plan::Task& task, const Addresses& addresses, DType type) : width(size_of(type)) {
  const plan::MoveRule& rule = plan::rule_of(plan::move_of(task));
  const bool by_piece = rule.owner == plan::MoveRule::Owner::piece;
  buffers = task.reads.empty() || (by_piece && !rule.sums) ? addresses.writes : addresses.reads;
  if (by_piece) {
    pieces = rule.sums ? addresses.writes : addresses.reads;
  }
  const auto* collective = std::get_if<Collective>(&task.action);
  if (collective != nullptr && collective->sgd_rate > 0) {
    check(!is_narrow(type), "an all-reduce applies gradients of {}", to_text(type));
    parameters = addresses.writes;
  }
}

}  // namespace baton::exec
