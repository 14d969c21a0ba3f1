#include "baton/checkpoint/share.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exec/ranks/rank_run.h"

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

SharedSource::SharedSource(exec::World& world, const Source* at_rank_0) : world_(world), at_rank_0_(at_rank_0) {
  std::string contents;
  if (at_rank_0 != nullptr) {
    put(contents, std::to_string(at_rank_0->metadata().size()));
    for (const auto& [key, value] : at_rank_0->metadata()) {
      put(contents, key);
      put(contents, value);
    }
    for (const auto& [name, tensor] : at_rank_0->tensors()) {
      put(contents, name);
      put(contents, tensor.dtype.name());
      std::string extents;
      for (std::size_t axis = 0; axis < tensor.shape.rank(); ++axis) {
        extents += fmt::format("{}{}", axis == 0 ? "" : ",", tensor.shape[axis]);
      }
      put(contents, extents);
    }
  }
  exec::Blob blob = exec::to_blob(contents);
  world.broadcast(blob, 0);
  contents = exec::to_text(blob);
  std::string_view rest = contents;
  for (std::int64_t left = parse_integer(take(rest), "a count", 0, 1 << 20); left > 0; --left) {
    std::string key = take(rest);
    metadata_[std::move(key)] = take(rest);
  }
  while (!rest.empty()) {
    TensorInfo& tensor = tensors_[take(rest)];
    tensor.dtype = archive::ElementType::by_name(take(rest)).value();
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

void SharedSource::read(const std::string& name, std::span<std::byte> into) const {
  exec::on_rank_0(world_, [&] { at_rank_0_->read(name, into); });
  exec::share_bytes(world_, 0, into);
}

}  // namespace baton::checkpoint
