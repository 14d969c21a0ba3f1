#pragma once

#include <algorithm>
#include <cstdint>

#include "baton/base/divide.h"
#include "baton/threads/member.h"

namespace baton::exec::cpu {

/// A member's part of `count` things, in whole multiples of `grain`.
struct MemberRange : Range {
  MemberRange(const threads::Member& member, std::int64_t count, std::int64_t grain = 1) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const Range own = divide(grains, member.count, member.index, Remainder::spread);
    begin = std::min(count, own.begin * grain);
    end = std::min(count, own.end * grain);
  }
};

/// Elements, of two bytes or more, after which another cache line begins: no two members write into one.
constexpr std::int64_t cache_line = 32;

}  // namespace baton::exec::cpu
