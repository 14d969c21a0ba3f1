#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/// Values as the bytes that ranks send each other. All ranks of a run have the same build, so values are sent as they lie in
/// memory.
namespace baton::ranks {

using Blob = std::vector<std::byte>;
/// Text as bytes and back.
Blob to_blob(std::string_view text);
std::string to_text(const Blob& blob);

/// Writes values one after the other.
class Packer {
 public:
  template <typename Value>
  Packer& add(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(Value));
    return *this;
  }
  Packer& add_text(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }
  /// The bytes in the form that `World` takes.
  std::span<const std::byte> span() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

/// Reads them back, in the same order. Truncated data gives zeros, and `good` is then false.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  explicit Unpacker(const Blob& blob) : bytes_(reinterpret_cast<const char*>(blob.data()), blob.size()) {}

  template <typename Value>
  Value take() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value{};
    if (bytes_.size() < sizeof(Value)) {
      good_ = false;
    } else {
      std::memcpy(&value, bytes_.data(), sizeof(Value));
      bytes_.remove_prefix(sizeof(Value));
    }
    return value;
  }
  std::string take_text();
  bool good() const { return good_; }
  /// True if all has been read.
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace baton::ranks
