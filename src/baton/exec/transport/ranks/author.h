#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "baton/exec/transport/dealing.h"
#include "baton/exec/transport/ranks/meeting.h"

namespace baton::exec {

/// Hands out places in a stretch of memory; or, without one, only counts how much would be needed.
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
  int rank = 0;                        // that runs it
  std::optional<MemberMemory> memory;  // where that is this one
};

/// Writes this rank's part of a meeting, of whose members it runs some: `first` is any of them. Everything
/// goes straight from each member to the one that needs it. Where `least` is not zero, each rank tells the
/// others when its members have come, and from when all have the meeting lasts that long.
void write_meeting(RankMeeting& meeting, const plan::Task& first, DType type, const std::vector<Participant>& members,
                   const std::vector<Share>& shares, int first_tag, Nanoseconds least, Staging& staging);

/// How many tags it takes from the first one on. All ranks number its messages alike, since all deal its
/// elements alike.
std::int64_t tags_of(const std::vector<Share>& shares);

}  // namespace baton::exec
