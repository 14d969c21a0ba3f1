#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace baton {

/// A strong index: a task's number cannot be passed where a buffer's is expected.
template <typename Tag>
struct Id {
  std::uint32_t value = invalid;

  static constexpr std::uint32_t invalid = 0xffffffffU;

  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value(static_cast<std::uint32_t>(index)) {}

  constexpr bool valid() const { return value != invalid; }
  constexpr std::size_t index() const { return value; }
  constexpr auto operator<=>(const Id&) const = default;
};

using DeviceId = Id<struct DeviceTag>;
using BufferId = Id<struct BufferTag>;
using TaskId = Id<struct TaskTag>;
/// The id that a send and its receive have in common, and likewise the members of a collective.
using MeetingId = Id<struct MeetingTag>;

}  // namespace baton

template <typename Tag>
struct std::hash<baton::Id<Tag>> {
  std::size_t operator()(baton::Id<Tag> id) const noexcept { return std::hash<std::uint32_t>()(id.value); }
};
