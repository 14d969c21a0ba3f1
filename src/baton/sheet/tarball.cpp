#include "baton/sheet/tarball.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "baton/base/error.h"

namespace baton::sheet {
namespace {

constexpr std::size_t block = 512;

void put(std::string& header, std::size_t at, const std::string& text) { header.replace(at, text.size(), text); }

/// One entry of a tar archive in the form of POSIX (ustar).
std::string entry(const std::string& path, const std::string& text) {
  check(path.size() < 100, "the path {} is too long for an archive", path);
  std::string header(block, '\0');
  put(header, 0, path);
  put(header, 100, "0000644");
  put(header, 108, "0000000");
  put(header, 116, "0000000");
  put(header, 124, fmt::format("{:011o}", text.size()));
  put(header, 136, "00000000000");  // no time: equal files give equal archives
  put(header, 148, "        ");
  header[156] = '0';
  put(header, 257, "ustar");
  put(header, 263, "00");
  unsigned sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  put(header, 148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::string out = header + text;
  out.resize((out.size() + block - 1) / block * block, '\0');
  return out;
}

std::uint32_t crc32(const std::string& text) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1) != 0 ? 0xedb88320U ^ (value >> 1) : value >> 1;
    }
    table[i] = value;
  }
  std::uint32_t crc = 0xffffffffU;
  for (const char c : text) {
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

void put_little(std::string& out, std::uint32_t value, int bytes) {
  for (int b = 0; b < bytes; ++b) {
    out += static_cast<char>(value >> (8 * b) & 0xff);
  }
}

/// In gzip's form, as it is: blocks of at most 64 KiB that are stored and not compressed.
std::string gzip(const std::string& text) {
  std::string out("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", 10);
  for (std::size_t at = 0; at < text.size() || at == 0; at += 0xffff) {
    const std::size_t length = std::min<std::size_t>(0xffff, text.size() - at);
    out += static_cast<char>(at + length == text.size() ? 1 : 0);
    put_little(out, static_cast<std::uint32_t>(length), 2);
    put_little(out, ~static_cast<std::uint32_t>(length) & 0xffffU, 2);
    out.append(text, at, length);
  }
  put_little(out, crc32(text), 4);
  put_little(out, static_cast<std::uint32_t>(text.size()), 4);
  return out;
}

}  // namespace

std::string to_tarball(const std::string& folder, const std::map<std::string, std::string>& files) {
  std::string archive;
  for (const auto& [path, text] : files) {
    archive += entry(fmt::format("{}/{}", folder, path), text);
  }
  archive.append(2 * block, '\0');
  return gzip(archive);
}

}  // namespace baton::sheet
