#include "baton/model/protobuf.h"

namespace baton::model::protobuf {

std::optional<std::uint64_t> Message::take_number(std::string_view& bytes) {
  std::uint64_t number = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) {
      return number;
    }
  }
  return std::nullopt;
}

std::optional<Field> Message::next() {
  if (rest_.empty() || broken_) {
    return std::nullopt;
  }
  broken_ = true;  // until a field has been read
  const std::optional<std::uint64_t> key = take_number(rest_);
  if (!key || *key >> 3 == 0) {
    return std::nullopt;
  }
  Field field{.number = *key >> 3};
  const std::uint64_t kind = *key & 7U;
  if (kind == 0 || kind == 2) {
    const std::optional<std::uint64_t> value = take_number(rest_);
    if (!value || (kind == 2 && *value > rest_.size())) {
      return std::nullopt;
    }
    field.value = *value;
    if (kind == 2) {
      field.has_bytes = true;
      field.bytes = rest_.substr(0, *value);
      rest_.remove_prefix(*value);
    }
  } else if (kind == 1 || kind == 5) {  // eight or four bytes
    const std::size_t size = kind == 1 ? 8 : 4;
    if (rest_.size() < size) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < size; ++i) {
      field.value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(size);
  } else {
    return std::nullopt;
  }
  broken_ = false;
  return field;
}

}  // namespace baton::model::protobuf
