#pragma once

#include <algorithm>
#include <cstdint>

#include "baton/exec/host/member.h"

namespace baton::exec::cpu {

/// A member's part of `count` things, in whole multiples of `grain`.
struct Part {
  Part(const Member& member, std::int64_t count, std::int64_t grain = 1) {
    const std::int64_t grains = (count + grain - 1) / grain;
    begin = std::min(count, grains * member.index / member.count * grain);
    end = std::min(count, grains * (member.index + 1) / member.count * grain);
  }
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

/// Elements, of two bytes or more, after which another cache line begins: no two members write into one.
constexpr std::int64_t cache_line = 32;

}  // namespace baton::exec::cpu
