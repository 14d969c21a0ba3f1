#include "baton/exec/transport/dealing.h"

#include <algorithm>

#include "baton/base/error.h"

namespace baton::exec {
namespace {

using plan::Collective;

/// Of all buffers in a row, the elements that fall to `rank`.
plan::Piece range_of(Move move, std::int64_t total, std::int64_t rank, std::int64_t members) {
  switch (move) {
    case Move::all_reduce:
      return {rank * total / members, (rank + 1) * total / members};
    case Move::copy:
    case Move::broadcast:
      return {0, rank == 0 ? 0 : total};
    case Move::reduce:
      return {0, rank == 0 ? total : 0};
    case Move::reduce_scatter:
    case Move::all_gather:
      break;
  }
  throw BugError("pieces are dealt buffer by buffer");
}

void cut(Share& share, std::size_t buffer, std::int64_t begin, std::int64_t end, std::int64_t chunk_elements) {
  for (std::int64_t at = begin; at < end; at += chunk_elements) {
    share.chunks.push_back({buffer, at, std::min(chunk_elements, end - at)});
  }
}

/// To each member its own pieces.
void cut_pieces(Share& share, std::size_t buffer, plan::Piece range, std::size_t piece, std::int64_t chunk_elements) {
  for (std::int64_t at = range.begin; at < range.end; at += chunk_elements) {
    share.chunks.push_back({buffer, at, std::min(chunk_elements, range.end - at), piece, at - range.begin});
  }
}

}  // namespace

Move move_of(const plan::Task& task) {
  const auto* collective = std::get_if<Collective>(&task.action);
  if (collective == nullptr) {
    return Move::copy;
  }
  switch (collective->kind) {
    case Collective::Kind::all_reduce:
      return Move::all_reduce;
    case Collective::Kind::broadcast:
      return Move::broadcast;
    case Collective::Kind::reduce:
      return Move::reduce;
    case Collective::Kind::reduce_scatter:
      return Move::reduce_scatter;
    case Collective::Kind::all_gather:
      return Move::all_gather;
  }
  throw BugError("a collective of no kind");
}

std::size_t rank_of(const plan::Task& task) {
  if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
    return transfer->end == plan::Transfer::End::send ? 0 : 1;
  }
  return std::get<Collective>(task.action).rank;
}

std::vector<Share> deal(const plan::Plan& plan, MeetingId meeting, std::int64_t chunk_elements) {
  const std::size_t members = plan.members(meeting).size();
  const plan::Task& first = plan[plan.members(meeting)[0]];
  const Move move = move_of(first);
  const std::span<const BufferId> buffers = plan::payload(first);
  const DType type = plan[buffers[0]].dtype;
  std::int64_t total = 0;
  for (const BufferId id : buffers) {
    total += plan[id].shape.elements();
    check(plan[id].dtype == type, "buffer {} of a collective is of another type", id.value);
  }
  std::vector<Share> shares(members);
  for (std::size_t rank = 0; rank < members; ++rank) {
    Share& share = shares[rank];
    std::size_t piece = 0;
    std::int64_t start = 0;  // of the buffer, in the row of all buffers
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const std::int64_t extent = plan[buffers[b]].shape.elements();
      if (move == Move::reduce_scatter || move == Move::all_gather) {
        const plan::Piece range = plan::piece_of(extent, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(members));
        cut_pieces(share, b, range, piece, chunk_elements);
        piece += range.size() > 0 ? 1 : 0;
      } else {
        const plan::Piece range = range_of(move, total, static_cast<std::int64_t>(rank), static_cast<std::int64_t>(members));
        cut(share, b, std::max(range.begin, start) - start, std::min(range.end, start + extent) - start, chunk_elements);
      }
      start += extent;
    }
  }
  return shares;
}

MemberMemory::MemberMemory(const plan::Task& task, const Addresses& addresses, DType type) : width(size_of(type)) {
  const Move move = move_of(task);
  buffers = task.reads.empty() || move == Move::all_gather ? addresses.writes : addresses.reads;
  if (move == Move::reduce_scatter || move == Move::all_gather) {
    pieces = move == Move::all_gather ? addresses.reads : addresses.writes;
  }
  const auto* collective = std::get_if<Collective>(&task.action);
  if (collective != nullptr && collective->sgd_rate > 0) {
    check(!is_narrow(type), "an all-reduce applies gradients of {}", to_text(type));
    parameters = addresses.writes;
  }
}

}  // namespace baton::exec
