#include "baton/checkpoint/share.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::checkpoint {
namespace {

/// Texts one after the other, each behind its length.
void put(std::string& list, std::string_view text) { list += fmt::format("{}\n{}", text.size(), text); }

std::string take(std::string_view& list) {
  const std::size_t end = list.find('\n');
  check(end != std::string_view::npos, "an archive between ranks is cut short");
  const auto size = static_cast<std::size_t>(parse_integer(list.substr(0, end), "a length", 0, std::int64_t{1} << 40));
  std::string text(list.substr(end + 1, size));
  list.remove_prefix(end + 1 + size);
  return text;
}

}  // namespace

void broadcast(exec::World& world, Archive& archive) {
  if (world.alone()) {
    return;
  }
  // What there is, in one message; then the tensors, each in one.
  std::string contents;
  put(contents, std::to_string(archive.metadata.size()));
  for (const auto& [key, value] : archive.metadata) {
    put(contents, key);
    put(contents, value);
  }
  for (const auto& [name, tensor] : archive.tensors) {
    put(contents, name);
    put(contents, std::to_string(static_cast<int>(tensor.dtype)));
    std::string extents;
    for (std::size_t axis = 0; axis < tensor.shape.rank(); ++axis) {
      extents += fmt::format("{}{}", axis == 0 ? "" : ",", tensor.shape[axis]);
    }
    put(contents, extents);
  }
  exec::Blob blob = exec::to_blob(contents);
  world.broadcast(blob, 0);
  if (world.rank() != 0) {
    archive = {};
    contents = exec::to_text(blob);
    std::string_view rest = contents;
    for (std::int64_t left = parse_integer(take(rest), "a count", 0, 1 << 20); left > 0; --left) {
      std::string key = take(rest);
      archive.metadata[std::move(key)] = take(rest);
    }
    while (!rest.empty()) {
      Tensor& tensor = archive.tensors[take(rest)];
      tensor.dtype = static_cast<DType>(parse_integer(take(rest), "a type", 0, 255));
      std::vector<std::int64_t> extents;
      const std::string text = take(rest);
      for (const std::string_view extent : split(text, ',')) {
        if (!text.empty()) {
          extents.push_back(parse_integer(extent, "an extent", 0, std::int64_t{1} << 48));
        }
      }
      tensor.shape = Shape(extents);
    }
  }
  for (auto& [name, tensor] : archive.tensors) {
    world.broadcast(tensor.bytes, 0);
  }
}

}  // namespace baton::checkpoint
