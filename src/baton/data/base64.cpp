#include "baton/data/base64.h"

#include <cstdint>

namespace baton::data {
namespace {

constexpr std::string_view digits_of_64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += at + i <= bytes.size() ? digits_of_64[group >> (18 - 6 * i) & 0x3fU] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t group = 0;
    std::size_t padding = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const char c = text[at + i];
      const std::size_t digit = digits_of_64.find(c);
      padding += c == '=' ? 1 : 0;
      if (c == '=' ? i < 2 || at + 4 != text.size() : digit == std::string_view::npos || padding > 0) {
        return std::nullopt;
      }
      group = group << 6 | (c == '=' ? 0U : static_cast<std::uint32_t>(digit));
    }
    for (std::size_t i = 0; i < 3 - padding; ++i) {
      bytes += static_cast<char>(group >> (16 - 8 * i) & 0xffU);
    }
  }
  return bytes;
}

}  // namespace baton::data
