#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace baton::test {

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Numbers as they lie in memory, little-endian.
template <typename Number>
std::string packed(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// A file of tokens with llm.c's header.
template <typename Token>
std::string llmc_shard(const std::vector<Token>& tokens, std::int32_t magic, std::int32_t version) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return packed(header) + packed(tokens);
}

/// An IDX file of bytes.
inline std::string idx(const std::vector<std::uint32_t>& extents, const std::string& elements) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(extent >> shift & 0xffU);
    }
  }
  return bytes + elements;
}

}  // namespace baton::test
