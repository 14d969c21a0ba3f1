#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

/// The wire format of protocol buffers, as far as reading ONNX files takes it. The library and ONNX's own definitions would be two
/// packages and some megabytes of generated code for a loop over fields; nothing is copied here, and the lengths in a message
/// are checked against the bytes that are there.
namespace baton::model::protobuf {

struct Field {
  std::uint64_t number = 0;
  bool has_bytes = false;   // a text, a message or numbers in a row; otherwise one number
  std::uint64_t value = 0;  // the bits of one number
  std::string_view bytes = {};

  float real() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
  std::int64_t integer() const { return static_cast<std::int64_t>(value); }
};

/// The fields of a message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  /// nullopt at the end, and if what comes is not a field.
  std::optional<Field> next();
  /// True if it ended where its bytes end.
  bool whole() const { return !broken_ && rest_.empty(); }

  /// A number of seven bits per byte, taken from the front of `bytes`; nullopt if there is none.
  static std::optional<std::uint64_t> take_number(std::string_view& bytes);

 private:
  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace baton::model::protobuf
