#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

/// What transports have in common: which elements of a meeting fall to which member. Sums then have the same bits whichever
/// way the elements went.
namespace baton::exec {

using plan::Move;

/// A run of elements that is moved or summed in one go.
struct Chunk {
  std::size_t buffer;
  std::int64_t begin;
  std::int64_t count;
  std::size_t piece = 0;         // of the pieces that its share's member holds,
  std::int64_t piece_begin = 0;  // where in it
};

/// The chunks that fall to one member: of a sum those that it adds up, of what is copied those that it gets, of an
/// all_gather those that it gives.
struct Share {
  std::vector<Chunk> chunks;
};

/// A meeting's shares, by rank.
std::vector<Share> deal(const plan::Plan& plan, MeetingId meeting, std::int64_t chunk_elements);

/// Where a member's buffers lie, as far as they cross.
struct MemberMemory {
  MemberMemory(const plan::Task& task, const Addresses& addresses, DType type);

  std::byte* at(const Chunk& chunk) const { return buffers[chunk.buffer] + chunk.begin * width; }
  std::byte* parameter_at(const Chunk& chunk) const { return parameters[chunk.buffer] + chunk.begin * width; }
  /// Of the member whose share it is.
  std::byte* piece_at(const Chunk& chunk) const { return pieces[chunk.piece] + chunk.piece_begin * width; }

  std::vector<std::byte*> buffers;     // the whole ones
  std::vector<std::byte*> pieces;      // that it reads or writes, where members hold pieces
  std::vector<std::byte*> parameters;  // where the sum is applied and not kept
  std::int64_t width;                  // of an element
};

}  // namespace baton::exec
