#pragma once

#include <filesystem>
#include <string>

namespace baton::test {

/// What a source file says in English, apart from its code. Both texts have the lines of the file, so that a line's number is
/// right.
struct Prose {
  std::string comments;
  std::string literals;  // string literals of at least five words; adjacent ones are one
};

/// True if `prose_of` knows the language by the name: C++, CUDA, JavaScript, CSS, HTML, Python, TOML, CMake, shell, the launcher.
bool has_prose(const std::filesystem::path& file);

/// The comments and literals of a source file. Literals of shell scripts include here-documents. HTML is a comment as a whole.
Prose prose_of(const std::filesystem::path& file);

}  // namespace baton::test
