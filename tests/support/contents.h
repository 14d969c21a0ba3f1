#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace baton::test {

/// The contents of a file, byte by byte; empty if there is no such file.
inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace baton::test
