#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "baton/exec/transport/dealing.h"
#include "baton/exec/transport/ranks/meeting.h"

namespace baton::exec {

/// Allocates from a block of memory; or, without one, only counts how much is needed.
class Staging {
 public:
  explicit Staging(std::byte* base) : base_(base) {}

  std::byte* take(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    std::byte* const place = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + alignment - 1) / alignment * alignment;
    return place;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// A member of a meeting as this rank sees it.
struct Participant {
  int rank = 0;                        // the rank that runs it
  std::optional<MemberMemory> memory;  // its memory, if this rank runs it
};

/// Writes this rank's part of a meeting, of whose members it runs some: `first` is any of them. Everything
/// goes straight from each member to the one that needs it. If `min_duration` is not zero, each rank tells the
/// others when its members have arrived, and after all have, the meeting lasts at least that long.
void write_meeting(RankMeeting& meeting, const plan::Task& first, DType type, const std::vector<Participant>& members,
                   const std::vector<Share>& shares, int first_tag, Nanoseconds min_duration, Staging& staging);

/// The number of tags that it uses, starting from the first. All ranks number its messages in the same way, because all
/// divide its elements in the same way.
std::int64_t tags_of(const std::vector<Share>& shares);

}  // namespace baton::exec
