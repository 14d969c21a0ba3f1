#include "baton/cuda/nccl_calls.h"

#include <span>

namespace baton::cuda {
namespace {

using plan::Collective;
using plan::Move;

/// One whole buffer that is dealt out, and the member's own piece of it (null if nothing falls to it).
void deal_pieces(std::vector<NcclCall>& calls, const Collective& collective, std::byte* whole, std::byte* own,
                 std::int64_t elements, std::int64_t width) {
  const bool gathers = !plan::rule_of(collective.kind).sums;
  if (elements / collective.row % collective.size == 0) {
    const std::int64_t each = elements / collective.size;
    calls.push_back(gathers ? NcclCall{Move::all_gather, own, whole, each} : NcclCall{Move::reduce_scatter, whole, own, each});
    return;
  }
  const plan::Piece mine = plan::piece_of(elements, collective);
  if (gathers && mine.size() > 0) {
    calls.push_back({Move::copy, own, whole + mine.begin * width, mine.size()});
  }
  for (std::uint32_t owner = 0; owner < collective.size; ++owner) {
    const plan::Piece range = plan::piece_of(elements, owner, collective.size, collective.row);
    std::byte* const at = whole + range.begin * width;
    if (range.size() > 0) {
      calls.push_back(
          gathers ? NcclCall{Move::broadcast, at, at, range.size(), static_cast<int>(owner)}
                  : NcclCall{Move::reduce, at, owner == collective.rank ? own : nullptr, range.size(), static_cast<int>(owner)});
    }
  }
}

}  // namespace

std::vector<NcclCall> nccl_calls(const plan::Plan& plan, const plan::Task& task, const exec::Addresses& at) {
  const std::span<const BufferId> payload = plan::payload(task);
  const DType type = plan[payload[0]].dtype;
  const Move move = plan::move_of(task);
  const std::vector<std::byte*>& whole = task.reads.empty() || move == Move::all_gather ? at.writes : at.reads;
  const std::vector<std::byte*>& pieces = move == Move::all_gather ? at.reads : at.writes;
  std::vector<NcclCall> calls;
  std::size_t piece = 0;
  for (std::size_t b = 0; b < payload.size(); ++b) {
    const std::int64_t elements = plan[payload[b]].shape.elements();
    switch (move) {
      case Move::copy:
        calls.push_back(plan::rank_of(task) == 0 ? NcclCall{Move::copy, whole[b], nullptr, elements, 1}
                                                 : NcclCall{Move::copy, nullptr, whole[b], elements, 0});
        break;
      case Move::broadcast:
        calls.push_back({Move::broadcast, whole[b], whole[b], elements, 0});
        break;
      case Move::reduce:
        calls.push_back({Move::reduce, whole[b], plan::rank_of(task) == 0 ? whole[b] : nullptr, elements, 0});
        break;
      case Move::all_reduce:
        calls.push_back({Move::all_reduce, whole[b], whole[b], elements});
        break;
      case Move::reduce_scatter:
      case Move::all_gather: {
        const auto& collective = std::get<Collective>(task.action);
        const bool has_piece = plan::piece_of(elements, collective).size() > 0;
        deal_pieces(calls, collective, whole[b], has_piece ? pieces[piece++] : nullptr, elements, size_of(type));
        break;
      }
    }
  }
  return calls;
}

}  // namespace baton::cuda
