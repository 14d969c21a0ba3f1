#include "baton/ranks/pack.h"

#include <algorithm>

namespace baton::ranks {

Blob to_blob(std::string_view text) {
  Blob blob(text.size());
  std::transform(text.begin(), text.end(), blob.begin(), [](char c) { return static_cast<std::byte>(c); });
  return blob;
}

std::string to_text(const Blob& blob) {
  std::string text(blob.size(), '\0');
  std::transform(blob.begin(), blob.end(), text.begin(), [](std::byte b) { return static_cast<char>(b); });
  return text;
}

std::string Unpacker::take_text() {
  const auto size = take<std::uint32_t>();
  if (!good_ || bytes_.size() < size) {
    good_ = false;
    return {};
  }
  std::string text(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return text;
}

}  // namespace baton::ranks
