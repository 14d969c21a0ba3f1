#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/addresses.h"
#include "baton/plan/plan.h"

/// Shared by all transports: which member owns which elements of a meeting. So sums have the same bits in every
/// transport.
namespace baton::exec {

using plan::Move;

/// Consecutive elements that are moved or summed in one operation.
struct ElementRun {
  std::size_t buffer;
  std::int64_t begin;
  std::int64_t count;
  std::size_t piece = 0;         // which of the pieces that the share's member holds
  std::int64_t piece_begin = 0;  // the first element in that piece
};

/// The runs of one member: in a sum those that it adds up, in a copy those that it receives, in an all_gather those
/// that it sends.
struct Share {
  std::vector<ElementRun> runs;
};

/// A meeting's shares, by rank.
std::vector<Share> deal(const plan::Plan& plan, MeetingId meeting, std::int64_t run_elements);

/// The addresses of those buffers of a member that are sent or received.
struct MemberMemory {
  MemberMemory(const plan::Task& task, const Addresses& addresses, DType type);

  std::byte* at(const ElementRun& run) const { return buffers[run.buffer] + run.begin * width; }
  std::byte* parameter_at(const ElementRun& run) const { return parameters[run.buffer] + run.begin * width; }
  /// The run's address in its piece. Only in the memory of the member whose share it is.
  std::byte* piece_at(const ElementRun& run) const { return pieces[run.piece] + run.piece_begin * width; }

  std::vector<std::byte*> buffers;     // the whole buffers
  std::vector<std::byte*> pieces;      // the pieces that it reads or writes, if members hold pieces
  std::vector<std::byte*> parameters;  // the parameters, if the sum is applied and not kept
  std::int64_t width;                  // bytes per element
};

}  // namespace baton::exec
