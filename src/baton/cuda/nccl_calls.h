#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/exec/addresses.h"
#include "baton/plan/plan.h"

namespace baton::cuda {

/// A call of NCCL by a member of a meeting, or a copy before it. A `copy` with one end is a send or a receive; one with both ends
/// is from one place of its own to another, before all others.
struct NcclCall {
  plan::Move move = plan::Move::copy;
  const std::byte* from = nullptr;  // nullptr if it sends nothing
  std::byte* to = nullptr;          // nullptr if it receives nothing
  std::int64_t elements = 0;        // for a reduce_scatter or an all_gather the elements of one piece
  int peer = 0;                     // the root of a broadcast or a reduce, the other end of a send or a receive
};

/// The calls of one member; the calls of all members pair up in their order. Sums that are to be applied are left in place
/// of the parts. Where pieces are of uneven size, each is reduced to its owner, or broadcast by it.
std::vector<NcclCall> nccl_calls(const plan::Plan& plan, const plan::Task& task, const exec::Addresses& at);

}  // namespace baton::cuda
