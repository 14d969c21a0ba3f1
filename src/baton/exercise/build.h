#pragma once

#include <filesystem>
#include <string>

#include "baton/exercise/exercises.h"

namespace baton::exercise {

/// A program made of an answer, or why there is none.
struct Built {
  std::filesystem::path program;
  std::string complaint;  // empty if it was built: a sentence, and what the compiler said on the lines below
};

/// Builds the answer with the exercise's own program around it, in `folder`, with the compiler of the environment (CXX, or c++).
/// Baton's headers and libraries come from this program's place: its build folder, or the package it was installed with. A failure
/// if that or the compiler is missing.
Built build(const Exercise& exercise, const std::string& answer, const std::filesystem::path& folder);

}  // namespace baton::exercise
