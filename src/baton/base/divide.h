#pragma once

#include <cstdint>
#include <vector>

namespace baton {

/// Indices [begin, end) of a run of things.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The parts that get one more if a division leaves a remainder.
///   first    the first ones: rows of a batch, features of a tensor, blocks of a stage
///   spread   part i begins at ⌊i · count / parts⌋, so that larger parts are spread and the last is one of them: pieces of
///            buffers, work of a team's members
enum class Remainder : std::uint8_t { first, spread };

/// The things that part number `part` gets if `count` things are divided over `parts`, in order and as evenly as possible.
constexpr Range divide(std::int64_t count, std::int64_t parts, std::int64_t part, Remainder rule) {
  if (rule == Remainder::spread) {
    return {part * count / parts, (part + 1) * count / parts};
  }
  const std::int64_t size = count / parts;
  const std::int64_t larger = count % parts;
  const std::int64_t begin = part * size + (part < larger ? part : larger);
  return {begin, begin + size + (part < larger ? 1 : 0)};
}

/// The sizes of all parts.
inline std::vector<std::int64_t> divide(std::int64_t count, std::int64_t parts, Remainder rule) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts));
  for (std::int64_t part = 0; part < parts; ++part) {
    sizes[static_cast<std::size_t>(part)] = divide(count, parts, part, rule).size();
  }
  return sizes;
}

}  // namespace baton
